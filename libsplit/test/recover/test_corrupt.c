/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged logs: every byte of header, records and lease flipped in turn, files cut off at every interesting length, random bytes,
 * missing staging files. Recovery never fails in a way that it can't say, and never changes a byte of a file that the lease does
 * not name, nor one outside of the ranges of the valid records.
 */
#include "world.h"

#define SLOTS 16

static struct world w;
static struct world_log l;
static struct world_file mine, other;
static char image[SFS_LOG_RECORDS_OFFSET + SLOTS * 64], lease_image[8192];
static size_t lease_size;

static void lease_name(char *name)
{
	sprintf(name, "%06u.lease", l.id);
}

static void build(void)
{
	char name[32];
	int fd;

	world_new(&w);
	mine = world_file(&w, "mine", 'o', 8192);
	other = world_file(&w, "other", 'x', 8192);
	world_log(&w, &l, 3, SLOTS);
	world_allow(&l, &mine);
	world_write(&w, &l, &mine, 1000, 100, 'a', 0);
	world_write(&w, &l, &mine, 5000, 5000, 'b', 1);
	world_done(&w, &l, 12345, 1, 0);
	for (int i = 0; i < 2; i++) {
		struct sfs_record r =
			world_record(&l, &mine, 2000 + (uint64_t)i * 100, 100, 4 * 4096 + 2000 + (uint64_t)i * 100, 10000);

		r.group_pos = (uint8_t)i;
		r.group_left = (uint8_t)(1 - i);
		r.flags |= SFS_REC_DATA_CRC;
		CHECK_EQ(pwrite(l.chunk_fd,
				"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
				"cccccc",
				100, (off_t)r.stage_off),
			 100);
		{
			char c[100];

			memset(c, 'c', 100);
			r.data_crc = crc32c(0, c, 100);
		}
		world_put(&w, &l, &r);
	}
	CHECK_EQ(pread(l.fd, image, sizeof(image), 0), sizeof(image));
	lease_name(name);
	fd = openat(w.root.log, name, O_RDONLY);
	lease_size = (size_t)read(fd, lease_image, sizeof(lease_image));
	CHECK(lease_size > 4096);
	close(fd);
}

/* Everything as build() left it, but for the damage. */
static void restore(void)
{
	char name[32], o[10000];
	int fd;

	fd = openat(w.root.log, "000003", O_RDWR | O_CREAT, 0600);
	CHECK_EQ(pwrite(fd, image, sizeof(image), 0), sizeof(image));
	CHECK_EQ(ftruncate(fd, sizeof(image)), 0);
	close(fd);
	lease_name(name);
	fd = openat(w.root.log, name, O_RDWR | O_CREAT, 0600);
	CHECK_EQ(pwrite(fd, lease_image, lease_size, 0), lease_size);
	CHECK_EQ(ftruncate(fd, (off_t)lease_size), 0);
	close(fd);
	if (faccessat(w.root.pool, "000300", F_OK, 0) < 0) {
		/* The same bytes under the same number. */
		CHECK_EQ(sfs_chunk_create(&w.root, 300, WORLD_CHUNK, NULL), 0);
		fd = openat(w.root.pool, "000300", O_RDWR);
		memset(o, 'a', 100);
		CHECK_EQ(pwrite(fd, o, 100, 1000), 100);
		memset(o, 'b', 5000);
		CHECK_EQ(pwrite(fd, o, 5000, 4096 + 5000 % 4096), 5000);
		memset(o, 'c', 200);
		CHECK_EQ(pwrite(fd, o, 200, 4 * 4096 + 2000), 200);
		close(fd);
	}
	memset(o, 'o', 8192);
	CHECK_EQ(pwrite(mine.fd, o, 8192, 0), 8192);
	CHECK_EQ(ftruncate(mine.fd, 8192), 0);
}

/* 'mine' holds in each place the old or the recorded byte, 'other' is as it was. */
static void check(void)
{
	char buf[20000];
	const ssize_t n = pread(mine.fd, buf, sizeof(buf), 0);

	CHECK(n == 8192 || n == 10000);
	for (ssize_t i = 0; i < n; i++) {
		const char new = i >= 1000 && i < 1100 ? 'a' : i >= 5000 ? 'b' : i >= 2000 && i < 2200 ? 'c' : 'o';
		const char old = i < 8192 ? 'o' : 0;

		if (buf[i] != new &&buf[i] != old)
			FAIL("byte %zd is 0x%02x", i, (unsigned char)buf[i]);
	}
	world_expect(&other, 8192, 0, 8192, 'x');
}

static int recover(struct sfs_recovery *sum)
{
	const struct sfs_recover_how how = {.durable = false};
	struct sfs_why why = {0};
	uint32_t living;
	int err;

	memset(sum, 0, sizeof(*sum));
	err = sfs_recover_all(&w.root, &how, sum, &living, &why);
	if (err && !why.text[0])
		FAIL("error %d without a sentence", err);
	return err;
}

static void damage(const char *name, off_t at, unsigned char xor)
{
	int fd = openat(w.root.log, name, O_RDWR);
	unsigned char b;

	CHECK(fd >= 0);
	CHECK_EQ(pread(fd, &b, 1, at), 1);
	b ^= xor;
	CHECK_EQ(pwrite(fd, &b, 1, at), 1);
	close(fd);
}

int main(void)
{
	struct sfs_recovery sum;
	uint64_t rng = test_seed(3);
	char lease[32];

	build();
	world_log_close(&l);
	lease_name(lease);
	CHECK_EQ(recover(&sum), 0);
	CHECK_EQ(sum.replayed, 4);
	check();

	for (size_t at = 0; at < sizeof(image); at++) {
		if (at == 256)
			at = SFS_LOG_RECORDS_OFFSET; /* padding and counters are not read */
		restore();
		damage("000003", (off_t)at, (unsigned char)(1u << test_below(&rng, 8)));
		CHECK_EQ(recover(&sum), 0);
		check();
		/* A damaged record, or one of a damaged group, has no effect. */
		if (at >= SFS_LOG_RECORDS_OFFSET && at < SFS_LOG_RECORDS_OFFSET + 5 * 64)
			CHECK(sum.records == 4);
	}
	for (size_t at = 0; at < lease_size; at++) {
		if (at == 68)
			at = 4096;
		restore();
		damage(lease, (off_t)at, (unsigned char)(1u << test_below(&rng, 8)));
		if (recover(&sum)) {
			CHECK(at >= 8 && at < 12); /* the format: not for us */
			CHECK_EQ(faccessat(w.root.log, "000003", F_OK, 0), 0);
		}
		check();
	}
	for (size_t size = 0; size <= sizeof(image); size += size < 100 || size > SFS_LOG_RECORDS_OFFSET - 100 ? 1 : 97) {
		restore();
		CHECK_EQ(faccessat(w.root.log, "000003", F_OK, 0), 0);
		{
			int fd = openat(w.root.log, "000003", O_RDWR);

			CHECK_EQ(ftruncate(fd, (off_t)size), 0);
			close(fd);
		}
		CHECK_EQ(recover(&sum), 0);
		check();
	}
	for (size_t size = 0; size <= lease_size; size += size < 4090 && size > 70 ? 97 : 1) {
		int fd;

		restore();
		fd = openat(w.root.log, lease, O_RDWR);
		CHECK_EQ(ftruncate(fd, (off_t)size), 0);
		close(fd);
		CHECK_EQ(recover(&sum), 0);
		check();
	}
	for (int i = 0; i < 20; i++) {
		int fd;

		restore();
		fd = openat(w.root.pool, "000300", O_RDWR);
		CHECK_EQ(ftruncate(fd, i == 0 ? 0 : (off_t)test_below(&rng, 6 * 4096)), 0);
		close(fd);
		CHECK_EQ(recover(&sum), 0);
		check();
	}
	restore();
	CHECK_EQ(unlinkat(w.root.pool, "000300", 0), 0);
	CHECK_EQ(recover(&sum), 0);
	CHECK_EQ(sum.quarantined, 4);
	check();
	/* Random bytes in place of records, sealed with the right checksum half of the time. */
	for (int i = 0; i < 3000; i++) {
		int fd;

		restore();
		fd = openat(w.root.log, "000003", O_RDWR);
		for (uint32_t s = 0; s < SLOTS; s++) {
			struct sfs_record r;

			test_fill(&rng, &r, sizeof(r));
			if (test_below(&rng, 2)) {
				r = world_record(&l, test_below(&rng, 4) ? &other : &mine, test_random(&rng), 1, 0, 10);
				r.type = (uint8_t)test_below(&rng, 4);
				r.flags = (uint8_t)test_below(&rng, 4);
				r.group_pos = (uint8_t)test_below(&rng, 3);
				r.group_left = (uint8_t)test_below(&rng, 3);
				if (r.ino == mine.ino)
					r.stage_file = (uint32_t)test_random(&rng) | 0x10000;
				r.stage_off = test_random(&rng);
				r.len = (uint32_t)test_random(&rng);
				r.size = test_random(&rng);
				world_seal(&w, &l, &r, s);
			}
			CHECK_EQ(pwrite(fd, &r, sizeof(r), SFS_LOG_RECORDS_OFFSET + s * 64), 64);
		}
		close(fd);
		CHECK_EQ(recover(&sum), 0);
		check();
	}
	close(mine.fd);
	close(other.fd);
	world_end(&w);
	return 0;
}
