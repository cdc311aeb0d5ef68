/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table that says who stages what, and the claims of processes that change files by the kernel (owners.h). Counted are grants that are
 * EXCLUSIVE, and the lease entries of clients of the agent before us that have not come back: all that a client may act upon.
 *
 * The table is a file, so that it outlives the agent: a living client goes on looking at it, and the next agent goes on with it.
 */
#include "format/owners.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/result.h"

struct owners {
	uint64_t *word; /* mapped; NULL: there is no table, and clients ask for every file */
	int fd;		/* read-only, for clients */
	uint32_t stagers[SFS_OWNERS_WORDS + 1], others[SFS_OWNERS_WORDS + 1];
	uint32_t outside[SFS_OWNERS_WORDS + 1]; /* inodes that programs without the library have open */
	/* The agent before us said so. Nobody tells us when they close: it is said as long as clients have such inodes. */
	bool said[SFS_OWNERS_WORDS + 1];
	bool before[SFS_OWNERS_WORDS + 1]; /* and so it was when we began */
};

static uint64_t shown(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
}

/* The word as the counts are; with another number where something was granted. */
static void show(struct owners *o, uint32_t i, bool granted)
{
	const uint32_t number = sfs_owners_number(o->word[i]) + granted;
	uint64_t word = (uint64_t)number << 32 | shown(o->others[i], SFS_OWNERS_MOST_OTHERS) << 16 |
			shown(o->stagers[i], SFS_OWNERS_MOST);

	o->said[i] = o->said[i] && sfs_owners_any(word);
	if (o->outside[i] || o->said[i])
		word |= SFS_OWNERS_OUTSIDE;
	__atomic_store_n(&o->word[i], word, __ATOMIC_SEQ_CST);
}

static void change(struct owners *o, uint32_t i, enum counted how, int by)
{
	*(how == COUNTED_STAGER ? &o->stagers[i] : &o->others[i]) += (uint32_t)by;
	show(o, i, by > 0);
}

static void owners_add(struct agent *a, uint64_t ino, enum counted how)
{
	struct owners *o = a->owners;
	const uint32_t i = sfs_owners_index(ino);

	if (!o || how == NOT_COUNTED)
		return;
	change(o, i, how, 1);
	change(o, SFS_OWNERS_ALL, how, 1);
}

static void owners_del(struct agent *a, uint64_t ino, enum counted how)
{
	struct owners *o = a->owners;
	const uint32_t i = sfs_owners_index(ino);

	if (!o || how == NOT_COUNTED)
		return;
	change(o, SFS_OWNERS_ALL, how, -1);
	change(o, i, how, -1);
}

void owners_count(struct agent *a, struct hold *h, enum counted how)
{
	const enum counted before = h->counted;

	if (how == before)
		return;
	h->counted = how;
	owners_add(a, h->dnode->ino, how); /* first: the word is not to say "nobody" between */
	owners_del(a, h->dnode->ino, before);
}

void owners_count_away(struct agent *a, struct client *c, bool away)
{
	if (c->counted_away == away)
		return;
	c->counted_away = away;
	for (uint32_t i = 0; i < c->lease.head.ninodes; i++) {
		const struct sfs_lease_inode *e = &c->lease.inodes[i];

		if (e->valid == 1)
			(away ? owners_add : owners_del)(a, e->ino, COUNTED_STAGER);
	}
}

void owners_outside(struct agent *a, struct dnode *d)
{
	struct owners *o = a->owners;
	const bool outside = openers_any(d);
	const uint32_t i = sfs_owners_index(d->ino), at[] = {i, SFS_OWNERS_ALL};

	if (!o || d->shown_outside == outside)
		return;
	d->shown_outside = outside;
	for (unsigned k = 0; k < 2; k++) {
		o->outside[at[k]] += outside ? 1 : -1u;
		show(o, at[k], false);
	}
}

bool owners_said(const struct agent *a, uint64_t ino)
{
	return a->owners && a->owners->before[sfs_owners_index(ino)];
}

uint32_t owners_number(const struct agent *a, uint64_t ino)
{
	return a->owners ? sfs_owners_number(a->owners->word[sfs_owners_index(ino)]) : 0;
}

/* Claims are read, not mapped: their owner could cut the log off under a mapping. */
static bool claims(const struct client *c, uint64_t ino)
{
	struct sfs_claims t;

	if (c->log_fd < 0 || pread(c->log_fd, &t, sizeof(t), SFS_CLAIMS_OFFSET) != (ssize_t)sizeof(t))
		return false;
	if (t.unnamed)
		return true;
	for (uint32_t i = 0; i < SFS_CLAIMS; i++)
		if (t.claim[i].ino == ino)
			return true;
	return false;
}

bool owners_claimed(const struct agent *a, const struct client *asks, uint64_t ino)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (const struct client *c = a->owners ? a->clients : NULL; c; c = c->next)
		/* A client that is gone does nothing any more. */
		if (c != asks && c->state != C_DYING && claims(c, ino))
			return true;
	return false;
}

int owners_fd(const struct agent *a)
{
	return a->owners ? a->owners->fd : -1;
}

/* ---- start and end ---- */

/*
 * For clients: open on a mount of its own, which is read-only. Who is root in a pod could open it anew for writing by /proc/self/fd otherwise.
 * Where mounts can't be made, the table's mode has to do.
 */
static int open_for_clients(const struct agent *a)
{
	struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
	int tree = (int)syscall(SYS_open_tree, a->root.ctl, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), fd;

	if (tree >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0)
		drop_fd(&tree);
	fd = openat(tree >= 0 ? tree : a->root.ctl, SFS_OWNERS_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	drop_fd(&tree);
	return fd < 0 ? -errno : fd;
}

static int open_table(struct agent *a, struct owners *o)
{
	const int fd = openat(a->root.ctl, SFS_OWNERS_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err = fd < 0 ? -errno : 0;
	struct stat st;
	void *p;

	if (!err)
		err = sfs_root_own(&a->root, fd);
	if (!err)
		err = fstat(fd, &st) < 0 ? -errno : 0;
	if (!err)
		a->owners_ino = st.st_ino;
	/* One that is there already needs no space, which there may not be: its readers go on with it. */
	if (!err && !(st.st_size >= (off_t)SFS_OWNERS_BYTES && (uint64_t)st.st_blocks * 512 >= SFS_OWNERS_BYTES))
		err = -posix_fallocate(fd, 0, SFS_OWNERS_BYTES);
	if (!err) {
		o->fd = open_for_clients(a);
		err = o->fd < 0 ? o->fd : 0;
	}
	if (!err) {
		p = mmap(NULL, SFS_OWNERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			err = -errno;
		else
			o->word = p;
	}
	for (uint32_t i = 0; !err && i <= SFS_OWNERS_ALL; i++)
		o->before[i] = o->said[i] = sfs_owners_outside(o->word[i]);
	if (fd >= 0)
		close(fd);
	return err;
}

int owners_start(struct agent *a, struct sfs_why *why)
{
	struct owners *o = calloc(1, sizeof(*o));
	int err;

	if (!o)
		return sfs_fail(why, -ENOMEM, "out of memory");
	o->fd = -1;
	a->owners = o;
	err = open_table(a, o);
	if (!err) {
		mlock(o->word, SFS_OWNERS_BYTES); /* where that is refused the pages may have to be read again */
		return 0;
	}
	owners_stop(a);
	/* Without space for a new one clients ask for each file. One that they look at already must not stand still. */
	if (sfs_no_space(err)) {
		unlinkat(a->root.ctl, SFS_OWNERS_NAME, 0);
		agent_log(a, "make %s: %s: every process asks for every file", SFS_OWNERS_NAME, strerror(-err));
		return 0;
	}
	return sfs_fail(why, err, "open %s/" SFS_CONTROL_DIR "/" SFS_OWNERS_NAME ": %s", a->root.path, strerror(-err));
}

void owners_settle(struct agent *a)
{
	for (uint32_t i = 0; a->owners && i <= SFS_OWNERS_ALL; i++)
		if (a->owners->word[i])
			show(a->owners, i, true);
}

void owners_stop(struct agent *a)
{
	struct owners *o = a->owners;

	a->owners = NULL;
	if (!o)
		return;
	if (o->word)
		munmap(o->word, SFS_OWNERS_BYTES);
	drop_fd(&o->fd);
	free(o);
}
