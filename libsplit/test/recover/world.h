/* SPDX-License-Identifier: Apache-2.0 */
/* A volume in a temporary directory, and a client that is played: it stages bytes and writes records without the library. */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "harness.h"
#include "format/identity.h"
#include "format/layout.h"
#include "recover/recover.h"
#include "control/root.h"
#include "control/store.h"

#ifndef WORLD_CHUNK
#define WORLD_CHUNK (2u << 20)
#endif

struct world {
	char dir[64];
	struct sfs_root root;
};

struct world_log {
	uint32_t id;
	int fd;
	uint32_t slot; /* next */
	uint32_t slots;
	uint64_t epoch;
	struct sfs_leasefile lease;
	uint32_t chunk; /* the first staging file, and its descriptor */
	int chunk_fd;
};

struct world_file {
	int fd;
	uint64_t ino;
	uint32_t gen;
};

static inline int world_rm_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void world_open(struct world *w)
{
	struct sfs_why why = {0};

	if (sfs_root_open(&w->root, w->dir, true, &why))
		FAIL("%s", why.text);
}

/* TEST_VOLUME names the directory to work in: another file system than /dev/shm. */
static inline void world_new(struct world *w)
{
	const char *base = getenv("TEST_VOLUME");

	snprintf(w->dir, sizeof(w->dir), "%s/sfs.XXXXXX", base ? base : "/dev/shm");
	CHECK(mkdtemp(w->dir));
	world_open(w);
}

static inline void world_end(struct world *w)
{
	sfs_root_close(&w->root);
	CHECK_EQ(nftw(w->dir, world_rm_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* A log with its lease and one staging file, of a process that is gone. */
static inline void world_log(struct world *w, struct world_log *l, uint32_t id, uint32_t slots)
{
	const struct sfs_lease head = {.held = 1, .pid = 4194304 + 1, .start = 1, .mode = SFS_STRICT, .comm = "played"};
	struct sfs_why why = {0};

	memset(l, 0, sizeof(*l));
	l->id = id;
	l->slots = slots;
	l->epoch = 1;
	l->fd = sfs_log_create(&w->root, id, slots, 0, &why);
	if (l->fd < 0)
		FAIL("%s", why.text);
	CHECK_EQ(sfs_lease_create(&w->root, id, &head, &l->lease), 0);
	l->chunk = id * 100;
	if (sfs_chunk_create(&w->root, l->chunk, WORLD_CHUNK, &why))
		FAIL("%s", why.text);
	l->chunk_fd = sfs_chunk_open(&w->root, l->chunk);
	CHECK(l->chunk_fd >= 0);
	CHECK_EQ(sfs_lease_add_chunk(&l->lease, l->chunk), 0);
}

static inline void world_log_close(struct world_log *l)
{
	close(l->fd);
	close(l->chunk_fd);
	sfs_lease_close(&l->lease);
}

static inline struct world_file world_identify(int fd)
{
	struct world_file f = {.fd = fd};
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	f.ino = st.st_ino;
	CHECK_EQ(sfs_generation(fd, &f.gen), 0);
	return f;
}

/* A new file with `n` bytes of content c. */
static inline struct world_file world_file(struct world *w, const char *name, char c, size_t n)
{
	int fd = openat(w->root.fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	char *buf = malloc(n + 1);

	CHECK(fd >= 0 && buf);
	memset(buf, c, n);
	CHECK_EQ(write(fd, buf, n), n);
	free(buf);
	return world_identify(fd);
}

static inline void world_allow(struct world_log *l, const struct world_file *f)
{
	CHECK(sfs_lease_add_inode(&l->lease, f->ino, f->gen) >= 0);
}

static inline void world_seal(struct world *w, const struct world_log *l, struct sfs_record *r, uint32_t slot)
{
	r->seq = l->epoch << 32 | slot;
	r->crc = crc32c(sfs_log_seed(w->root.uuid, l->id), (char *)r + 4, sizeof(*r) - 4);
}

static inline uint32_t world_put(struct world *w, struct world_log *l, struct sfs_record *r)
{
	world_seal(w, l, r, l->slot);
	CHECK_EQ(pwrite(l->fd, r, sizeof(*r), SFS_LOG_RECORDS_OFFSET + (off_t)l->slot * 64), 64);
	return l->slot++;
}

static inline struct sfs_record world_record(const struct world_log *l, const struct world_file *f, uint64_t off, uint32_t len,
					     uint64_t stage_off, uint64_t size)
{
	return (struct sfs_record){.type = SFS_REC_WRITE,
				   .flags = SFS_REC_DURABLE,
				   .ino = f->ino,
				   .gen = f->gen,
				   .off = off,
				   .len = len,
				   .stage_file = l->chunk,
				   .stage_off = stage_off,
				   .size = size};
}

/* Stage len bytes of c for offset off at block `block` of the staging file, and record them. */
static inline uint32_t world_write(struct world *w, struct world_log *l, const struct world_file *f, uint64_t off, uint32_t len,
				   char c, uint32_t block)
{
	struct sfs_record r = world_record(l, f, off, len, (uint64_t)block * SFS_BLOCK + off % SFS_BLOCK, off + len);
	char *buf = malloc(len);

	CHECK(buf);
	memset(buf, c, len);
	CHECK_EQ(pwrite(l->chunk_fd, buf, len, (off_t)r.stage_off), len);
	free(buf);
	return world_put(w, l, &r);
}

static inline uint32_t world_done(struct world *w, struct world_log *l, uint64_t ino, uint32_t gen, uint8_t flags)
{
	struct sfs_record r = {.type = SFS_REC_DONE, .flags = flags, .ino = ino, .gen = gen};

	return world_put(w, l, &r);
}

/* The log was written before this boot. */
static inline void world_reboot(struct world_log *l, bool dax)
{
	const uint8_t id[16] = "another boot..", d = dax;

	CHECK_EQ(pwrite(l->fd, id, 16, offsetof(struct sfs_log_header, boot_id)), 16);
	CHECK_EQ(pwrite(l->fd, &d, 1, offsetof(struct sfs_log_header, dax)), 1);
}

static inline struct sfs_recovery world_recover(struct world *w)
{
	const struct sfs_recover_how how = {.durable = true};
	struct sfs_recovery sum = {0};
	struct sfs_why why = {0};
	uint32_t living;

	if (sfs_recover_all(&w->root, &how, &sum, &living, &why))
		FAIL("%s", why.text);
	CHECK_EQ(living, 0);
	return sum;
}

/* The file is `n` bytes long and all of [from, to) is c. */
static inline void world_expect(const struct world_file *f, uint64_t n, uint64_t from, uint64_t to, char c)
{
	struct stat st;
	char *buf = malloc(to - from + 1);

	CHECK(buf);
	CHECK_EQ(fstat(f->fd, &st), 0);
	CHECK_EQ(st.st_size, n);
	CHECK_EQ(pread(f->fd, buf, to - from, (off_t)from), to - from);
	for (uint64_t i = 0; i < to - from; i++)
		if (buf[i] != c)
			FAIL("byte %llu is 0x%02x, expected 0x%02x", (unsigned long long)(from + i), (unsigned char)buf[i],
			     (unsigned char)c);
	free(buf);
}

/* How many entries a directory of the control directory has. */
static inline int world_entries(struct world *w, int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY), n = 0;
	DIR *d = fdopendir(fd);

	(void)w;
	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

#endif
