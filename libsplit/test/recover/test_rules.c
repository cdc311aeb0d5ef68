/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of docs/recovery.md: what a record does, and what leaves it without effect. */
#include "world.h"

static struct world w;
static struct world_log l;

static void fresh(uint32_t id)
{
	world_new(&w);
	world_log(&w, &l, id, 128);
}

/* The same with a file of `size` times 'o' that the log may name. */
static struct world_file fresh_file(uint32_t id, size_t size)
{
	struct world_file f;

	fresh(id);
	f = world_file(&w, "f", 'o', size);
	world_allow(&l, &f);
	return f;
}

static void end_file(struct world_file *f)
{
	close(f->fd);
	world_end(&w);
}

static struct sfs_recovery end(void)
{
	struct sfs_recovery s = world_recover(&w);

	world_log_close(&l);
	CHECK_EQ(world_entries(&w, w.root.log), 0);
	CHECK_EQ(world_entries(&w, w.root.pool), 0);
	return s;
}

static void append_and_overwrite(void)
{
	struct world_file f;
	struct sfs_recovery s;

	f = fresh_file(1, 10000);
	world_write(&w, &l, &f, 100, 200, 'a', 0);   /* overwrite */
	world_write(&w, &l, &f, 10000, 500, 'b', 5); /* append */
	world_write(&w, &l, &f, 150, 10, 'c', 8);    /* newer, within the first */
	s = end();
	CHECK_EQ(s.records, 3);
	CHECK_EQ(s.replayed, 3);
	CHECK_EQ(s.bytes, 700);
	CHECK_EQ(s.files, 1);
	CHECK_EQ(s.ignored + s.quarantined, 0);
	world_expect(&f, 10500, 0, 100, 'o');
	world_expect(&f, 10500, 100, 150, 'a');
	world_expect(&f, 10500, 150, 160, 'c');
	world_expect(&f, 10500, 160, 300, 'a');
	world_expect(&f, 10500, 300, 10000, 'o');
	world_expect(&f, 10500, 10000, 10500, 'b');
	end_file(&f);
}

/* A hole is a block that was moved. The bytes of an older record must not come back over it. */
static void moved_already(void)
{
	struct world_file f;
	struct sfs_recovery s;

	f = fresh_file(2, 8192);
	world_write(&w, &l, &f, 0, 4096, 'a', 0);
	world_write(&w, &l, &f, 0, 4096, 'b', 1);
	/* The client relinked the newer one and died before it said so. */
	CHECK_EQ(fallocate(l.chunk_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
	{
		char b[4096];

		memset(b, 'b', sizeof(b));
		CHECK_EQ(pwrite(f.fd, b, 4096, 0), 4096);
	}
	s = end();
	CHECK_EQ(s.bytes, 0);
	world_expect(&f, 8192, 0, 4096, 'b');
	world_expect(&f, 8192, 4096, 8192, 'o');
	end_file(&f);
}

static void retired(void)
{
	struct world_file f, g;
	struct sfs_recovery s;

	fresh(3);
	f = world_file(&w, "f", 'o', 4096);
	g = world_file(&w, "g", 'o', 4096);
	world_allow(&l, &f);
	world_allow(&l, &g);
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	world_write(&w, &l, &g, 0, 10, 'a', 1);
	world_done(&w, &l, f.ino, f.gen, 0);
	world_write(&w, &l, &f, 20, 10, 'b', 2);
	s = end();
	CHECK_EQ(s.replayed, 2);
	CHECK_EQ(s.ignored, 2);
	world_expect(&f, 4096, 0, 20, 'o');
	world_expect(&f, 4096, 20, 30, 'b');
	world_expect(&g, 4096, 0, 10, 'a');
	close(f.fd);
	close(g.fd);
	world_end(&w);
}

static void retired_all(void)
{
	struct world_file f;
	struct sfs_recovery s;

	f = fresh_file(4, 4096);
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	world_done(&w, &l, 0, 0, SFS_REC_DURABLE);
	s = end();
	CHECK_EQ(s.replayed, 0);
	world_expect(&f, 4096, 0, 4096, 'o');
	end_file(&f);
}

/* After a power loss on persistent memory: only what was fenced, and only a DONE that the journal had committed. */
static void other_boot_dax(void)
{
	struct world_file f;
	struct sfs_recovery s;
	struct sfs_record r;

	f = fresh_file(5, 4096);
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	world_done(&w, &l, f.ino, f.gen, 0); /* not durable: does not count */
	r = world_record(&l, &f, 100, 10, 4096 + 100, 110);
	r.flags = 0; /* posix, not fenced: does not count */
	CHECK_EQ(pwrite(l.chunk_fd, "zzzzzzzzzz", 10, 4096 + 100), 10);
	world_put(&w, &l, &r);
	world_reboot(&l, true);
	s = end();
	CHECK_EQ(s.replayed, 1);
	CHECK_EQ(s.ignored, 2);
	world_expect(&f, 4096, 0, 10, 'a');
	world_expect(&f, 4096, 10, 4096, 'o');
	end_file(&f);
}

/* posix: what stands before a COMMIT counts after a power loss, a DONE among it too. */
static void committed(bool all)
{
	struct world_file f;
	struct sfs_recovery s;
	struct sfs_record r;

	f = fresh_file(10, 4096);
	CHECK_EQ(pwrite(l.chunk_fd, "aaaaaaaaaabbbbbbbbbbcccccccccc", 30, 0), 30);
	for (int i = 0; i < 3; i++) {
		r = world_record(&l, &f, (uint64_t)i * 10, 10, (uint64_t)i * 10, 4096);
		r.flags = 0;
		world_put(&w, &l, &r);
		if (i == 0)
			world_done(&w, &l, f.ino, f.gen, 0);
		r = (struct sfs_record){.type = SFS_REC_COMMIT, .ino = all ? 0 : f.ino, .gen = all ? 0 : f.gen};
		if (i == 1)
			world_put(&w, &l, &r);
	}
	world_reboot(&l, true);
	s = end();
	CHECK_EQ(s.replayed, 1);
	world_expect(&f, 4096, 0, 10, 'o'); /* relinked, retired, and changed since */
	world_expect(&f, 4096, 10, 20, 'b');
	world_expect(&f, 4096, 20, 4096, 'o'); /* not committed */
	end_file(&f);
}

/* After a reboot of an emulated volume the page cache is gone: the log is void. */
/* sync, strict: a cut under way is finished where its record is the newest of the file, and makes no file longer. */
static void cut(uint64_t at, bool written_since, uint64_t size)
{
	struct world_file f;
	struct sfs_recovery s;
	struct sfs_record r;

	f = fresh_file(31, 4096);
	r = (struct sfs_record){.type = SFS_REC_TRUNCATE, .flags = SFS_REC_DURABLE, .ino = f.ino, .gen = f.gen, .size = at};
	world_put(&w, &l, &r);
	if (written_since)
		world_write(&w, &l, &f, 0, 10, 'a', 0);
	world_reboot(&l, true);
	s = end();
	CHECK_EQ(s.replayed, 1);
	CHECK_EQ(s.quarantined, written_since);
	world_expect(&f, size, 0, 10, written_since ? 'a' : 'o');
	world_expect(&f, size, 10, size, 'o');
	end_file(&f);
}

static void other_boot_emulated(void)
{
	struct world_file f;
	struct sfs_recovery s;

	f = fresh_file(6, 4096);
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	world_reboot(&l, false);
	s = end();
	CHECK_EQ(s.replayed, 0);
	CHECK_EQ(s.ignored, 1);
	world_expect(&f, 4096, 0, 4096, 'o');
	end_file(&f);
}

/* Records of one operation count all together or not at all. */
static void groups(void)
{
	struct world_file f;
	struct sfs_recovery s;

	f = fresh_file(7, 3 * 4096);
	for (int whole = 0; whole < 3; whole++) {
		for (int i = 0; i < 3; i++) {
			struct sfs_record r =
				world_record(&l, &f, (uint64_t)i * 4096, 4096, (uint64_t)(whole * 3 + i) * 4096, 3 * 4096);
			char b[4096];

			memset(b, '0' + whole, sizeof(b));
			CHECK_EQ(pwrite(l.chunk_fd, b, sizeof(b), (off_t)r.stage_off), 4096);
			r.group_pos = (uint8_t)i;
			r.group_left = (uint8_t)(2 - i);
			if (whole == 1 && i == 1)
				l.slot++; /* never stored */
			else if (whole == 2 && i == 0)
				l.slot++;
			else
				world_put(&w, &l, &r);
		}
	}
	s = end();
	CHECK_EQ(s.records, 7);
	CHECK_EQ(s.replayed, 3);
	CHECK_EQ(s.ignored, 4);
	world_expect(&f, 3 * 4096, 0, 3 * 4096, '0');
	end_file(&f);
}

static struct world_file second_file(void)
{
	struct world_file g = world_file(&w, "g", 'o', 4096);

	world_allow(&l, &g);
	return g;
}

/* One record of a group of several files; lost: it is never stored. */
static void of_files(struct world_file *f, char c, unsigned pos, unsigned left, bool lost)
{
	struct sfs_record r = world_record(&l, f, 0, 4096, (uint64_t)l.slot * 4096, 4096);
	char b[4096];

	memset(b, c, sizeof(b));
	CHECK_EQ(pwrite(l.chunk_fd, b, sizeof(b), (off_t)r.stage_off), 4096);
	r.flags |= SFS_REC_FILES;
	r.group_pos = (uint8_t)pos;
	r.group_left = (uint8_t)left;
	if (lost)
		l.slot++;
	else
		world_put(&w, &l, &r);
}

/* An operation on two files counts for both or for none; what one of them has retired says nothing about the other. */
static void groups_of_files(void)
{
	struct world_file f, g;
	struct sfs_recovery s;

	for (int lost = 0; lost < 3; lost++) {
		f = fresh_file(30 + (uint32_t)lost * 2, 4096);
		g = second_file();
		of_files(&f, 'a', 0, 1, false);
		of_files(&g, 'a', 1, 0, false);
		of_files(&f, 'b', 0, 1, lost == 1);
		of_files(&g, 'b', 1, 0, lost == 2);
		s = end();
		CHECK_EQ(s.replayed, lost ? 2 : 4);
		world_expect(&f, 4096, 0, 4096, lost ? 'a' : 'b');
		world_expect(&g, 4096, 0, 4096, lost ? 'a' : 'b');
		close(g.fd);
		end_file(&f);
	}
	/* One of them is in its file already. */
	f = fresh_file(36, 4096);
	g = second_file();
	of_files(&f, 'a', 0, 1, false);
	of_files(&g, 'a', 1, 0, false);
	world_done(&w, &l, f.ino, f.gen, SFS_REC_DURABLE);
	s = end();
	CHECK_EQ(s.replayed, 1);
	world_expect(&f, 4096, 0, 4096, 'o');
	world_expect(&g, 4096, 0, 4096, 'a');
	close(g.fd);
	end_file(&f);
	/* Without the flag they are no group. */
	f = fresh_file(38, 4096);
	g = second_file();
	for (int i = 0; i < 2; i++) {
		struct sfs_record r = world_record(&l, i ? &g : &f, 0, 4096, 0, 4096);

		r.group_pos = (uint8_t)i;
		r.group_left = (uint8_t)(1 - i);
		world_put(&w, &l, &r);
	}
	s = end();
	CHECK_EQ(s.replayed, 0);
	CHECK_EQ(s.ignored, 2);
	close(g.fd);
	end_file(&f);
}

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

/* A record of posix mode is as long as its grow word says, and void where that word is not its own. */
static void growing_records(void)
{
	struct world_file f;
	struct sfs_recovery s;
	struct sfs_record r;

	f = fresh_file(21, 4096);
	world_write(&w, &l, &f, 4096, 8192, 'g', 0);
	l.slot--;
#define GROWN(length, flag, ...)                                                                                               \
	do {                                                                                                                   \
		r = world_record(&l, &f, 4096, 10, 0, 0);                                                                      \
		r.flags = SFS_REC_GROWS | (flag);                                                                              \
		__VA_ARGS__;                                                                                                   \
		world_seal(&w, &l, &r, l.slot);                                                                                \
		r.crc = crc32c(sfs_log_seed(w.root.uuid, l.id), (const char *)&r + 4, offsetof(struct sfs_record, size) - 4);  \
		r.size = sfs_grow_word(r.crc, length);                                                                         \
	} while (0)
#define PUT() CHECK_EQ(pwrite(l.fd, &r, sizeof(r), SFS_LOG_RECORDS_OFFSET + (off_t)l.slot++ * 64), 64)
	/* Shorter than it began, of another record, with half of a newer word, of a group, or said to be durable. */
	GROWN(9, 0);
	PUT();
	GROWN(50, 0, r.off = 8192);
	r.size = sfs_grow_word(r.crc ^ 1, 50);
	PUT();
	GROWN(50, 0);
	r.size = (r.size & ~0xffffffffull) | 51;
	PUT();
	GROWN(50, 0, r.group_left = 1);
	PUT();
	GROWN(50, SFS_REC_DURABLE);
	PUT();
	GROWN(50, SFS_REC_DATA_CRC);
	PUT();
	/* It has grown over two blocks. */
	GROWN(5000, 0);
	PUT();
	s = world_recover(&w);
	CHECK_EQ(s.records, 1);
	CHECK_EQ(s.replayed, 1);
	CHECK_EQ(s.quarantined, 0);
	world_expect(&f, 4096 + 5000, 4096, 4096 + 5000, 'g');
	world_expect(&f, 4096 + 5000, 0, 4096, 'o');
	world_log_close(&l);
	close(f.fd);
	world_end(&w);

	/* Nor may it grow out of its staging file. */
	f = fresh_file(22, 4096);
	GROWN(WORLD_CHUNK + 1, 0);
	PUT();
	s = world_recover(&w);
	CHECK_EQ(s.quarantined, 1);
	world_expect(&f, 4096, 0, 4096, 'o');
	world_log_close(&l);
	end_file(&f);
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

/* The same generation on purpose: only the lease of this very identity counts. */
static void size_only_grows(void)
{
	struct world_file f;
	struct sfs_record r;

	f = fresh_file(12, 100);
	r = world_record(&l, &f, 0, 10, 0, 5000); /* a write behind the end came before and is in the file's size alone */
	CHECK_EQ(pwrite(l.chunk_fd, "aaaaaaaaaa", 10, 0), 10);
	world_put(&w, &l, &r);
	r = world_record(&l, &f, 20, 10, 20, 30);
	CHECK_EQ(pwrite(l.chunk_fd, "bbbbbbbbbb", 10, 20), 10);
	world_put(&w, &l, &r);
	end();
	world_expect(&f, 5000, 0, 10, 'a');
	world_expect(&f, 5000, 20, 30, 'b');
	world_expect(&f, 5000, 30, 100, 'o');
	world_expect(&f, 5000, 100, 5000, 0);
	end_file(&f);
}

static void set_user_id(void)
{
	struct world_file f;
	struct stat st;

	fresh(13);
	f = world_file(&w, "f", 'o', 100);
	CHECK_EQ(fchmod(f.fd, 06775), 0);
	world_allow(&l, &f);
	world_write(&w, &l, &f, 0, 10, 'a', 0);
	end();
	CHECK_EQ(fstat(f.fd, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0775);
	end_file(&f);
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
	append_and_overwrite();
	moved_already();
	retired();
	retired_all();
	other_boot_dax();
	committed(false);
	committed(true);
	cut(1000, false, 1000);
	cut(9000, false, 4096);
	cut(1000, true, 4096);
	other_boot_emulated();
	groups();
	groups_of_files();
	checksums();
	not_allowed();
	growing_records();
	epochs_and_slots();
	gone_and_reused();
	size_only_grows();
	set_user_id();
	unfinished_log();
	return 0;
}
