/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core against a byte array: random writes, reads, truncations, fallocates, syncs and reopens of a few files, with a log and staging
 * files small enough that checkpoints and an empty pool happen all the time. After every fsync and close the kernel must see
 * the same bytes. Snapshots taken meanwhile stay what they were, also of files that have been closed.
 */
#include <limits.h>

#include "harness.h"
#include "unit/core_agent.h"
#include "control/store.h"

#define FILES	 3
#define FILE_MAX (1 << 20)
#define CALLS	 6000

static struct file {
	char path[400];
	int fd;
	uint64_t size;
	uint8_t bytes[FILE_MAX];
} files[FILES];

static uint64_t state;
static unsigned refused; /* writes that found no space */
static uint8_t buf[FILE_MAX];

#define SNAPSHOTS 24
static struct {
	const void *p; /* NULL: none */
	size_t n;
	uint8_t *was;
} snapshots[SNAPSHOTS];
static unsigned peeks, copies;

static void drop_snapshot(unsigned i)
{
	CHECK_MEM(snapshots[i].p, snapshots[i].was, snapshots[i].n);
	CHECK_EQ(sfs_unpeek(snapshots[i].p), 0);
	free(snapshots[i].was);
	snapshots[i].p = NULL;
}

static void peek(struct file *f)
{
	const unsigned i = (unsigned)test_below(&state, SNAPSHOTS);
	const uint64_t off = test_random(&state) % (f->size + 100),
		       n = test_below(&state, 3) ? 1 + test_below(&state, 9000) : SSIZE_MAX;
	const uint64_t have = off < f->size ? (f->size - off < n ? f->size - off : n) : 0;
	size_t got = 0;
	int r;

	if (snapshots[i].p)
		drop_snapshot(i);
	r = sfs_peek(f->fd, (off_t)off, n, &snapshots[i].p, &got);
	peeks++;
	copies += r == SFS_PEEK_COPY;
	CHECK(r == 0 || r == SFS_PEEK_COPY);
	if (r == SFS_PEEK_COPY) {
		snapshots[i].p = NULL;
		return;
	}
	CHECK_EQ(got, have);
	CHECK((snapshots[i].p == NULL) == (got == 0));
	if (got == 0)
		return;
	CHECK_MEM(snapshots[i].p, f->bytes + off, have);
	snapshots[i].n = got;
	snapshots[i].was = malloc(got);
	memcpy(snapshots[i].was, f->bytes + off, got);
}

static void kernel_sees(struct file *f)
{
	int fd = open(f->path, O_RDONLY);
	struct stat st;

	CHECK(fd >= 0);
	CHECK(fstat(fd, &st) == 0);
	CHECK_EQ(st.st_size, f->size);
	CHECK_EQ(pread(fd, buf, f->size, 0), f->size);
	CHECK_MEM(buf, f->bytes, f->size);
	close(fd);
}

static void open_file(struct file *f)
{
	f->fd = sfs_openat(AT_FDCWD, f->path, O_RDWR | O_CREAT, 0644);
	CHECK(f->fd >= 0);
	CHECK(sfs_ours(f->fd));
}

static uint64_t length(void)
{
	switch (test_random(&state) % 4) {
	case 0:
		return 1 + test_random(&state) % 200;
	case 1:
		return 4096;
	case 2:
		return 1 + test_random(&state) % 9000;
	default:
		return 1 + test_random(&state) % 100000;
	}
}

static void write_some(struct file *f, bool append)
{
	uint64_t off = append ? f->size : test_random(&state) % (f->size + 5000), n = length();
	ssize_t r;

	if (test_random(&state) % 3 == 0)
		off &= ~4095ull;
	if (off + n > FILE_MAX)
		return;
	for (uint64_t i = 0; i < n; i += 8) {
		uint64_t v = test_random(&state);

		memcpy(buf + i, &v, n - i < 8 ? n - i : 8);
	}
	r = sfs_write(f->fd, buf, n, (off_t)off);
	CHECK(r > 0 || r == -ENOSPC);
	if (r <= 0) {
		refused++;
		return;
	}
	memcpy(f->bytes + off, buf, (size_t)r);
	if (off + (uint64_t)r > f->size)
		f->size = off + (uint64_t)r;
}

static void read_some(struct file *f)
{
	uint64_t off = test_random(&state) % (f->size + 100), n = length();
	uint64_t have = off < f->size ? (f->size - off < n ? f->size - off : n) : 0;

	CHECK_EQ(sfs_read(f->fd, buf, n, (off_t)off), have);
	CHECK_MEM(buf, f->bytes + off, have);
}

static void resize(struct file *f)
{
	uint64_t size = test_random(&state) % (f->size + 20000);

	if (size > FILE_MAX)
		return;
	CHECK_EQ(sfs_ftruncate(f->fd, (off_t)size), 0);
	if (size < f->size)
		memset(f->bytes + size, 0, f->size - size);
	f->size = size;
}

static void call(struct file *f)
{
	struct stat st;

	switch (test_random(&state) % 36) {
	case 0 ... 9:
		write_some(f, true);
		break;
	case 10 ... 17:
		write_some(f, false);
		break;
	case 18 ... 25:
		read_some(f);
		break;
	case 26:
		CHECK_EQ(sfs_fsync(f->fd, false), 0);
		kernel_sees(f);
		break;
	case 27:
		resize(f);
		break;
	case 28:
		CHECK(fstat(f->fd, &st) == 0);
		sfs_fix_stat(&st, sfs_stat_begin());
		CHECK_EQ(st.st_size, f->size);
		break;
	case 29:
		CHECK_EQ(sfs_lseek(f->fd, 0, SEEK_END), f->size);
		break;
	case 30:
		CHECK_EQ(sfs_close(f->fd), 0);
		kernel_sees(f);
		open_file(f);
		break;
	case 31:
		if (f->size < FILE_MAX - 5000) {
			CHECK_EQ(sfs_fallocate(f->fd, 0, (off_t)f->size, 5000), 0);
			f->size += 5000;
		}
		break;
	case 32 ... 35:
		peek(f);
		break;
	}
}

int main(int argc, char **argv)
{
	struct sfs_counters c;
	struct core_agent a = {.slots = 64 + 40, .chunk_bytes = 2 << 20, .chunks_left = 2};

	if (core_agent_modes(argc, argv))
		return 0;
	state = test_seed(20261121);
	core_agent_start(&a, argv[1]);
	for (int i = 0; i < FILES; i++) {
		snprintf(files[i].path, sizeof(files[i].path), "%s/file%d", a.root, i);
		open_file(&files[i]);
	}
	for (int i = 0; i < CALLS; i++)
		call(&files[test_random(&state) % FILES]);
	for (int i = 0; i < FILES; i++) {
		CHECK_EQ(sfs_close(files[i].fd), 0);
		kernel_sees(&files[i]);
	}
	for (unsigned i = 0; i < SNAPSHOTS; i++)
		if (snapshots[i].p)
			drop_snapshot(i);
	CHECK(peeks > CALLS / 20 && copies < peeks / 2);
	/* The test is worth something only if the interesting paths ran. */
	sfs_log_counters((const struct sfs_log_header *)a.log, (const struct sfs_log_stats *)(a.log + SFS_BLOCK), &c);
	CHECK(c.append_ops > CALLS / 8 && c.overwrite_ops > CALLS / 16 && c.read_ops > CALLS / 8);
	CHECK(c.relink_ops > 100 && c.checkpoints > 10 && c.records > 1000);
	CHECK(refused < CALLS / 20);
	core_agent_remove(&a);
	return 0;
}
