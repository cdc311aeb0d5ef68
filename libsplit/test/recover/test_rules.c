/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of docs/recovery.md: what a record does. What leaves it without effect: test_void.c; records that belong together: test_groups.c. */
#include "fresh.h"

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
	growing_records();
	size_only_grows();
	set_user_id();
	return 0;
}
