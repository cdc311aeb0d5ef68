/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: who holds a log, and which inodes and staging files its records may name. Only the agent writes them, by pwrite of what
 * changed, on persistent memory by stores; a copy in memory answers questions.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pm/pm.h"
#include "control/store.h"

#define INODES_MAX (1u << 24)
#define MAP_STEP   (64ull << 10) /* a new lease; it doubles */

static void unmap(struct sfs_leasefile *l)
{
	if (l->map)
		munmap(l->map, l->mapped);
	l->map = NULL;
	l->mapped = 0;
}

/* Make the file at least `size` bytes long, with zeros that are in the file system's journal, and map it. */
static int map(struct sfs_leasefile *l, uint64_t size)
{
	static const uint8_t zeros[4096];
	uint64_t want = MAP_STEP;
	struct stat st;
	void *p;

	if (fstat(l->fd, &st) < 0)
		return -errno;
	while (want < size || want < (uint64_t)st.st_size)
		want *= 2;
	for (uint64_t at = (uint64_t)st.st_size; at < want;) {
		const size_t n = want - at < sizeof(zeros) ? (size_t)(want - at) : sizeof(zeros) - at % sizeof(zeros);
		const ssize_t w = pwrite(l->fd, zeros, n, (off_t)at);

		if (w <= 0)
			return w < 0 ? -errno : -ENOSPC;
		at += (uint64_t)w;
	}
	if (fdatasync(l->fd) < 0)
		return -errno;
	unmap(l);
	p = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, l->fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	l->map = p;
	l->mapped = want;
	return 0;
}

static int put(struct sfs_leasefile *l, const void *p, size_t n, off_t at)
{
	ssize_t w;

	if (l->sync && !l->by_write && (uint64_t)at + n > l->mapped) {
		const int err = map(l, (uint64_t)at + n);

		if (err == -ENOSPC)
			return err;
		l->by_write = err != 0;
	}
	if ((uint64_t)at + n <= l->mapped) {
		pm_copy(l->map + at, p, n);
		return 0;
	}
	w = pwrite(l->fd, p, n, at);
	return w == (ssize_t)n ? 0 : w < 0 ? -errno : -ENOSPC;
}

static int put_head(struct sfs_leasefile *l)
{
	return put(l, &l->head, offsetof(struct sfs_lease, chunks), 0);
}

static int settle(struct sfs_leasefile *l)
{
	if (l->map)
		pm_fence();
	return l->by_write && fdatasync(l->fd) < 0 ? -errno : 0;
}

int sfs_lease_create(const struct sfs_root *r, uint32_t id, const struct sfs_lease *head, struct sfs_leasefile *l)
{
	char name[32];
	int err;

	memset(l, 0, sizeof(*l));
	l->sync = r->dax;
	l->head = *head;
	l->head.magic = SFS_LEASE_MAGIC;
	l->head.format = SFS_FORMAT;
	l->head.log_id = id;
	l->head.nchunks = l->head.ninodes = 0;
	memset(l->head.chunks, 0, sizeof(l->head.chunks));
	sfs_number_name(name, id, ".lease");
	l->fd = openat(r->log, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (l->fd < 0)
		return -errno;
	err = put(l, &l->head, sizeof(l->head), 0);
	if (!err)
		err = sfs_root_own(r, l->fd);
	if (!err)
		err = settle(l);
	/* The owner, and with it the name: the journal is in order. */
	if (!err && l->sync && fsync(l->fd) < 0)
		err = -errno;
	if (err) {
		sfs_lease_close(l);
		unlinkat(r->log, name, 0);
	}
	return err;
}

int sfs_lease_load(const struct sfs_root *r, uint32_t id, struct sfs_leasefile *l, struct sfs_why *why)
{
	char name[32];
	struct stat st;
	uint64_t entries;
	int err = -EINVAL;

	memset(l, 0, sizeof(*l));
	l->sync = r->dax;
	sfs_number_name(name, id, ".lease");
	l->fd = openat(r->log, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (l->fd < 0)
		return sfs_fail(why, -errno, "open %s/" SFS_CONTROL_DIR "/log/%s: %s", r->path, name, strerror(errno));
	if (fstat(l->fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    pread(l->fd, &l->head, sizeof(l->head), 0) != (ssize_t)sizeof(l->head) || l->head.magic != SFS_LEASE_MAGIC) {
		sfs_fail(why, err, "%s/" SFS_CONTROL_DIR "/log/%s is damaged", r->path, name);
		goto fail;
	}
	/* Cut short when it was made: its first words reached the medium before the others. */
	if (l->head.format == 0) {
		sfs_fail(why, err, "%s/" SFS_CONTROL_DIR "/log/%s is damaged", r->path, name);
		goto fail;
	}
	if (l->head.format != SFS_FORMAT) {
		err = sfs_fail(why, -EPROTONOSUPPORT,
			       "%s/" SFS_CONTROL_DIR
			       "/log/%s has format %u and this program knows format %u; nothing was changed. Use the "
			       "version of splitfs that wrote it",
			       r->path, name, l->head.format, SFS_FORMAT);
		goto fail;
	}
	entries = ((uint64_t)st.st_size - sizeof(l->head)) / sizeof(*l->inodes);
	if (l->head.log_id != id || l->head.nchunks > SFS_LEASE_CHUNKS || entries > INODES_MAX) {
		sfs_fail(why, err, "%s/" SFS_CONTROL_DIR "/log/%s is damaged", r->path, name);
		goto fail;
	}
	/* An entry counts when it is whole in the file and says so itself: ninodes is written after the entries. */
	l->head.ninodes = (uint32_t)entries;
	l->room = l->head.ninodes;
	if (entries) {
		l->inodes = calloc(entries, sizeof(*l->inodes));
		l->free = calloc(entries, sizeof(*l->free));
		if (!l->inodes || !l->free) {
			err = sfs_fail(why, -ENOMEM, "not enough memory for %s/" SFS_CONTROL_DIR "/log/%s", r->path, name);
			goto fail;
		}
		if (pread(l->fd, l->inodes, entries * sizeof(*l->inodes), sizeof(l->head)) !=
		    (ssize_t)(entries * sizeof(*l->inodes))) {
			err = sfs_fail(why, -EIO, "read %s/" SFS_CONTROL_DIR "/log/%s", r->path, name);
			goto fail;
		}
	}
	for (uint32_t i = 0; i < l->head.ninodes; i++)
		if (l->inodes[i].valid != 1)
			l->free[l->nfree++] = i;
	l->head.comm[sizeof(l->head.comm) - 1] = 0;
	return 0;
fail:
	sfs_lease_close(l);
	return err;
}

int64_t sfs_lease_add_inode(struct sfs_leasefile *l, uint64_t ino, uint32_t gen)
{
	const struct sfs_lease_inode e = {.ino = ino, .gen = gen, .valid = 1};
	const bool grow = l->nfree == 0;
	uint32_t i;
	int err;

	if (grow && l->head.ninodes == l->room) {
		const uint32_t room = l->room ? l->room * 2 : 64;
		struct sfs_lease_inode *inodes;
		uint32_t *unused;

		if (room > INODES_MAX)
			return -ENFILE;
		inodes = reallocarray(l->inodes, room, sizeof(*inodes));
		if (!inodes)
			return -ENOMEM;
		l->inodes = inodes;
		unused = reallocarray(l->free, room, sizeof(*unused));
		if (!unused)
			return -ENOMEM;
		l->free = unused;
		l->room = room;
	}
	i = grow ? l->head.ninodes : l->free[l->nfree - 1];
	err = put(l, &e, sizeof(e), (off_t)(sizeof(l->head) + (uint64_t)i * sizeof(e)));
	if (!err && grow) {
		l->head.ninodes++;
		err = put_head(l);
		if (err)
			l->head.ninodes--;
	}
	if (!err)
		err = settle(l);
	if (err)
		return err;
	if (!grow)
		l->nfree--;
	l->inodes[i] = e;
	return i;
}

int sfs_lease_del_inode(struct sfs_leasefile *l, uint32_t index)
{
	const struct sfs_lease_inode none = {0};

	if (index >= l->head.ninodes || l->inodes[index].valid != 1)
		return -EINVAL;
	l->inodes[index] = none;
	l->free[l->nfree++] = index;
	return put(l, &none, sizeof(none), (off_t)(sizeof(l->head) + (uint64_t)index * sizeof(none)));
}

static int put_chunk(struct sfs_leasefile *l, uint32_t i)
{
	return put(l, &l->head.chunks[i], sizeof(l->head.chunks[0]),
		   (off_t)(offsetof(struct sfs_lease, chunks) + i * sizeof(l->head.chunks[0])));
}

int sfs_lease_add_chunk(struct sfs_leasefile *l, uint32_t chunk)
{
	int err;

	if (l->head.nchunks == SFS_LEASE_CHUNKS)
		return -ENOSPC;
	l->head.chunks[l->head.nchunks++] = chunk;
	err = put_chunk(l, l->head.nchunks - 1);
	if (!err)
		err = put_head(l);
	if (!err)
		err = settle(l);
	if (err)
		l->head.nchunks--;
	return err;
}

/*
 * The last entry takes the place. A lease read between the two steps names one staging file twice, which does no harm. The shorter list must not
 * be persistent before that: it would name the staging file of the last entry no more, and recovery would set its records aside.
 */
int sfs_lease_del_chunk(struct sfs_leasefile *l, uint32_t chunk)
{
	int err;

	for (uint32_t i = 0; i < l->head.nchunks; i++) {
		if (l->head.chunks[i] != chunk)
			continue;
		l->head.chunks[i] = l->head.chunks[--l->head.nchunks];
		err = put_chunk(l, i);
		if (!err)
			err = settle(l);
		return err ? err : put_head(l);
	}
	return -ENOENT;
}

int sfs_lease_set_held(struct sfs_leasefile *l, enum sfs_held held)
{
	l->head.held = held;
	return put_head(l);
}

int sfs_lease_not_quiet(struct sfs_leasefile *l)
{
	int err;

	if (!l->head.quiet)
		return 0;
	l->head.quiet = 0;
	err = put_head(l);
	l->head.quiet = err != 0;
	return err;
}

int sfs_lease_spare(struct sfs_leasefile *l, uint32_t keep)
{
	const struct sfs_lease_inode none = {0};
	int err = 0;

	for (uint32_t i = 0; i < l->head.ninodes && !err; i++)
		if (l->inodes[i].valid == 1)
			err = put(l, &none, sizeof(none), (off_t)(sizeof(l->head) + (uint64_t)i * sizeof(none)));
	if (err)
		return err;
	l->inodes = NULL;
	l->free = NULL;
	l->nfree = l->room = l->head.ninodes = 0;
	l->head.nchunks = keep != 0;
	l->head.chunks[0] = keep;
	l->head.held = SFS_HELD_SPARE;
	err = put(l, &l->head, sizeof(l->head), 0);
	return err ? err : settle(l);
}

int sfs_lease_give(struct sfs_leasefile *l, const struct sfs_lease *head)
{
	int err;

	l->head.held = head->held;
	l->head.pid = head->pid;
	l->head.start = head->start;
	l->head.uid = head->uid;
	l->head.mode = head->mode;
	l->head.quiet = head->quiet;
	memcpy(l->head.comm, head->comm, sizeof(l->head.comm));
	err = put_head(l);
	return err ? err : settle(l);
}

void sfs_lease_close(struct sfs_leasefile *l)
{
	unmap(l);
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	free(l->inodes);
	free(l->free);
	l->inodes = NULL;
	l->free = NULL;
	l->nfree = l->room = 0;
}

int sfs_lease_remove(const struct sfs_root *r, uint32_t id)
{
	return sfs_number_remove(r->log, id, ".lease");
}

bool sfs_lease_alive(const struct sfs_lease *head, int logfd)
{
	struct sfs_log_header h;
	struct stat st;
	uint8_t boot[16];

	if (head->held != SFS_HELD_BY_CLIENT || head->pid <= 0 || head->start == 0 || sfs_boot_id(boot) ||
	    fstat(logfd, &st) < 0 || pread(logfd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return false;
	return memcmp(boot, h.boot_id, sizeof(boot)) == 0 && sfs_process_start(head->pid) == head->start &&
	       sfs_process_maps(head->pid, head->memory ? head->memory : st.st_ino);
}
