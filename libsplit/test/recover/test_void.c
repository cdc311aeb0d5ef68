/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves a record, or a whole log, without effect (docs/recovery.md). */
#include "fresh.h"

static void checksums(void)
{
	struct world_file f;
	struct sfs_recovery s;
	struct sfs_record r;

	f = fresh_file(8, 4096);
	r = world_record(&l, &f, 0, 5, 0, 5);
	r.flags |= SFS_REC_DATA_CRC;
	r.data_crc = crc32c(0, "right", 5);
	CHECK_EQ(pwrite(l.chunk_fd, "right", 5, 0), 5);
	world_put(&w, &l, &r);
	r = world_record(&l, &f, 0, 5, 4096, 5);
	r.flags |= SFS_REC_DATA_CRC;
	r.data_crc = crc32c(0, "wrong", 5);
	CHECK_EQ(pwrite(l.chunk_fd, "wro", 3, 4096), 3); /* the rest did not arrive */
	world_put(&w, &l, &r);
	s = end();
	CHECK_EQ(s.replayed, 1);
	CHECK_EQ(s.quarantined, 1);
	{
		char b[5];

		CHECK_EQ(pread(f.fd, b, 5, 0), 5);
		CHECK_MEM(b, "right", 5);
	}
	end_file(&f);
}

/* The log's holder may write what it likes into it; what it may not name has no effect. */
static void not_allowed(void)
{
	struct world_file f, other, big;
	struct sfs_recovery s;
	struct sfs_record r;
	int n = 0;

	fresh(9);
	f = world_file(&w, "f", 'o', 4096);
	other = world_file(&w, "other", 'x', 4096);
	big = world_file(&w, "big", 'o', 4096);
	world_allow(&l, &f);
	world_allow(&l, &big);
	/* A staging file of somebody else. */
	CHECK_EQ(sfs_chunk_create(&w.root, 7777, WORLD_CHUNK, NULL), 0);
#define REFUSED(...)                                                                                                           \
	do {                                                                                                                   \
		r = world_record(&l, &f, 0, 10, 0, 10);                                                                        \
		__VA_ARGS__;                                                                                                   \
		world_put(&w, &l, &r);                                                                                         \
		n++;                                                                                                           \
	} while (0)
	REFUSED(r.ino = other.ino, r.gen = other.gen);
	/* Nor does it become one that may be named by a record that needs no leave. */
	r = (struct sfs_record){.type = SFS_REC_COMMIT, .ino = other.ino, .gen = other.gen};
	world_put(&w, &l, &r);
	REFUSED(r.gen++);
	REFUSED(r.stage_file = 7777);
	REFUSED(r.stage_file = 0);
	REFUSED(r.stage_file = UINT32_MAX);
	REFUSED(r.stage_off = WORLD_CHUNK);
	REFUSED(r.stage_off = WORLD_CHUNK - 4096, r.len = 4097, r.size = 8192);
	REFUSED(r.stage_off = UINT64_MAX - 4095);
	REFUSED(r.stage_off = 1);
	REFUSED(r.off = UINT64_MAX - 4095, r.size = UINT64_MAX);
	REFUSED(r.off = (UINT64_MAX >> 1) / 4096 * 4096, r.size = UINT64_MAX >> 1, r.len = 8192);
	REFUSED(r.size = UINT64_MAX);
	REFUSED(r.size = 9);
	REFUSED(r.len = 0);
	REFUSED(r.len = UINT32_MAX, r.size = UINT32_MAX);
	world_write(&w, &l, &big, 1ull << 40, 10, 'b', 3);
	s = world_recover(&w);
	CHECK_EQ(s.quarantined, n);
	CHECK_EQ(s.replayed, 1);
	world_expect(&f, 4096, 0, 4096, 'o');
	world_expect(&other, 4096, 0, 4096, 'x');
	world_expect(&big, (1ull << 40) + 10, 1ull << 40, (1ull << 40) + 10, 'b');
	CHECK_EQ(world_entries(&w, w.root.pool), 1);
	world_log_close(&l);
	close(f.fd);
	close(other.fd);
	close(big.fd);
	world_end(&w);
}

static void epochs_and_slots(void)
{
	struct world_file f;
	struct sfs_recovery s;
	struct sfs_record r;

	f = fresh_file(10, 4096);
	/* Of an epoch before, as a cleared log is full of them. */
	l.epoch = 0;
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	l.epoch = 1;
	/* Copied to another slot. */
	r = world_record(&l, &f, 0, 10, 0, 10);
	world_seal(&w, &l, &r, 50);
	CHECK_EQ(pwrite(l.fd, &r, 64, SFS_LOG_RECORDS_OFFSET + 51 * 64), 64);
	/* Of another log. */
	r = world_record(&l, &f, 0, 10, 0, 10);
	r.seq = l.epoch << 32 | 60;
	r.crc = crc32c(sfs_log_seed(w.root.uuid, 11), (char *)&r + 4, 60);
	CHECK_EQ(pwrite(l.fd, &r, 64, SFS_LOG_RECORDS_OFFSET + 60 * 64), 64);
	s = end();
	CHECK_EQ(s.records, 0);
	world_expect(&f, 4096, 0, 4096, 'o');
	end_file(&f);
}

static void gone_and_reused(void)
{
	struct world_file f, g;
	struct sfs_recovery s;

	f = fresh_file(11, 4096);
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	CHECK_EQ(unlinkat(w.root.fd, "f", 0), 0);
	close(f.fd);
	/* Where the file system gives the inode number again, the generation tells the files apart. */
	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "g%d", i);
		g = world_file(&w, name, 'x', 4096);
		close(g.fd);
	}
	s = end();
	CHECK_EQ(s.replayed, 0);
	CHECK_EQ(s.ignored, 1);
	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "g%d", i);
		g = world_identify(openat(w.root.fd, name, O_RDONLY));
		world_expect(&g, 4096, 0, 4096, 'x');
		close(g.fd);
	}
	world_end(&w);
}

/* A log that was being made is nobody's. */
static void unfinished_log(void)
{
	int fd;

	fresh(11);
	fd = openat(w.root.log, "000123.tmp", O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0);
	close(fd);
	end();
	CHECK(faccessat(w.root.log, "000123.tmp", F_OK, 0) < 0 && errno == ENOENT);
	world_end(&w);
}

int main(void)
{
	checksums();
	not_allowed();
	epochs_and_slots();
	gone_and_reused();
	unfinished_log();
	return 0;
}
