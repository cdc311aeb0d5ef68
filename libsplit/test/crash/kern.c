/* SPDX-License-Identifier: Apache-2.0 */
/* Names, inodes and blocks. Every function that changes metadata ends in one changed(): one journalled operation. */
#include "crash/record.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

struct kern kern;
bool kern_on;

static void changed(uint64_t a, uint64_t b)
{
	if (kern.on_meta)
		kern.on_meta(1ull << a | 1ull << b);
}

static void touch(const uint8_t *p, size_t n, bool write)
{
	if (kern.on_touch)
		kern.on_touch(p, n, write);
}

static struct kern_inode *inode(uint32_t ino)
{
	return &kern.m.inode[ino];
}

static uint8_t *block(uint32_t b)
{
	return kern.pm + (size_t)b * KERN_BLOCK;
}

/* ---- names */

static struct kern_entry *find(uint32_t dir, const char *name)
{
	for (unsigned i = 0; i < KERN_ENTRIES; i++)
		if (kern.m.entry[i].dir == dir && strcmp(kern.m.entry[i].name, name) == 0)
			return &kern.m.entry[i];
	return NULL;
}

static struct kern_entry *add_entry(uint32_t dir, const char *name, uint32_t ino)
{
	for (unsigned i = 0; i < KERN_ENTRIES; i++) {
		struct kern_entry *e = &kern.m.entry[i];

		if (e->dir)
			continue;
		e->dir = (uint8_t)dir;
		e->ino = (uint8_t)ino;
		snprintf(e->name, sizeof(e->name), "%s", name);
		return e;
	}
	FAIL("more than %u names in the explorer's file system", KERN_ENTRIES);
}

int kern_parent(int dir, const char *path, char name[KERN_NAME])
{
	uint32_t at = KERN_ROOT_INO;

	if (path[0] == '/') {
		if (strncmp(path, "/v", 2) != 0 || (path[2] && path[2] != '/'))
			return -ENOENT;
		path += 2;
	} else if (dir != AT_FDCWD) {
		at = kern_fd_ino(dir);
		if (!at)
			return -EBADF;
	}
	for (;;) {
		const struct kern_entry *e;
		size_t n;

		while (*path == '/')
			path++;
		n = strcspn(path, "/");
		if (n >= KERN_NAME)
			return -ENAMETOOLONG;
		memcpy(name, path, n);
		name[n] = 0;
		path += n;
		if (path[strspn(path, "/")] == 0)
			return (int)at;
		e = strcmp(name, ".") == 0 ? NULL : find(at, name);
		if (!e && strcmp(name, ".") != 0)
			return -ENOENT;
		if (e)
			at = e->ino;
		if (inode(at)->type != KERN_DIR)
			return -ENOTDIR;
	}
}

int kern_lookup(int dir, const char *path, bool follow)
{
	static const char proc[] = "/proc/self/fd/";
	char name[KERN_NAME];
	const struct kern_entry *e;
	int at;

	if (strncmp(path, proc, sizeof(proc) - 1) == 0) {
		const uint32_t ino = kern_fd_ino(atoi(path + sizeof(proc) - 1));

		return ino ? (int)ino : -ENOENT;
	}
	at = kern_parent(dir, path, name);
	if (at < 0 || !name[0] || strcmp(name, ".") == 0)
		return at;
	e = find((uint32_t)at, name);
	if (!e)
		return -ENOENT;
	return follow && inode(e->ino)->type == KERN_LINK ? -ELOOP : e->ino;
}

static uint32_t new_inode(enum kern_type type, mode_t mode)
{
	for (uint32_t i = KERN_ROOT_INO; i < KERN_INODES; i++) {
		struct kern_inode *in = inode(i);

		if (in->type != KERN_FREE)
			continue;
		*in = (struct kern_inode){.type = (uint8_t)type, .nlink = 1, .mode = (uint16_t)(mode & 07777)};
		in->gen = mutant.kind == MUT_INODE_ALONE ? 7 : ++kern.m.next_gen;
		return i;
	}
	FAIL("more than %u inodes in the explorer's file system", KERN_INODES);
}

/* An inode without a name and without a descriptor is gone. */
static void drop(uint32_t ino)
{
	if (inode(ino)->nlink == 0 && !kern_is_open(ino))
		memset(inode(ino), 0, sizeof(struct kern_inode));
}

void kern_format(enum kern_fs fs, bool dax)
{
	memset(&kern.m, 0, sizeof(kern.m));
	kern.fs = fs;
	kern.dax = dax;
	kern.next_block = 1;
	kern.m.next_gen = 100;
	new_inode(KERN_DIR, 0755);
}

int kern_open(int dirfd, const char *path, int flags, mode_t mode)
{
	char name[KERN_NAME];
	int ino = kern_lookup(dirfd, path, !(flags & O_NOFOLLOW)), dir;

	if (ino > 0 && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		return -EEXIST;
	if (ino == -ENOENT && (flags & O_CREAT)) {
		dir = kern_parent(dirfd, path, name);
		if (dir < 0)
			return dir;
		ino = (int)new_inode(KERN_FILE, mode);
		add_entry((uint32_t)dir, name, (uint32_t)ino);
		changed((uint32_t)dir, (uint32_t)ino);
	}
	if (ino < 0)
		return ino;
	if (inode((uint32_t)ino)->type == KERN_LINK)
		return -ELOOP;
	if ((flags & O_DIRECTORY) && inode((uint32_t)ino)->type != KERN_DIR)
		return -ENOTDIR;
	if ((flags & O_TRUNC) && inode((uint32_t)ino)->size > 0)
		kern_truncate((uint32_t)ino, 0);
	return kern_fd_new(KERN_FD_FILE, (uint32_t)ino, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
}

int kern_rename(int olddir, const char *from, int newdir, const char *to, unsigned flags)
{
	char name[KERN_NAME], new_name[KERN_NAME];
	int a = kern_parent(olddir, from, name), b = kern_parent(newdir, to, new_name);
	struct kern_entry *e, *over;

	if (a < 0 || b < 0)
		return a < 0 ? a : b;
	e = find((uint32_t)a, name);
	over = find((uint32_t)b, new_name);
	if (!e)
		return -ENOENT;
	if (flags)
		return -EINVAL;
	if (over && over->ino == e->ino)
		return 0;
	if (over) {
		const uint32_t ino = over->ino;

		if (inode(ino)->type == KERN_DIR)
			return -EISDIR;
		inode(ino)->nlink--;
		memset(over, 0, sizeof(*over));
		drop(ino);
		if (mutant.kind == MUT_RENAME_TWICE)
			changed((uint32_t)a, (uint32_t)b);
	}
	if (!over && mutant.kind == MUT_RENAME_TWICE) {
		add_entry((uint32_t)b, new_name, e->ino);
		changed((uint32_t)a, (uint32_t)b);
		memset(e, 0, sizeof(*e));
	} else {
		e->dir = (uint8_t)b;
		snprintf(e->name, sizeof(e->name), "%s", new_name);
	}
	if (kern.on_meta)
		kern.on_meta(1ull << a | 1ull << b | 1ull << (uint32_t)kern_lookup(newdir, to, false));
	return 0;
}

int kern_link(int olddir, const char *from, int newdir, const char *to)
{
	char name[KERN_NAME];
	int ino = kern_lookup(olddir, from, false), dir = kern_parent(newdir, to, name);

	if (ino < 0 || dir < 0)
		return ino < 0 ? ino : dir;
	if (find((uint32_t)dir, name))
		return -EEXIST;
	add_entry((uint32_t)dir, name, (uint32_t)ino);
	inode((uint32_t)ino)->nlink++;
	changed((uint32_t)dir, (uint32_t)ino);
	return 0;
}

int kern_unlink(int dirfd, const char *path, int flags)
{
	char name[KERN_NAME];
	int dir = kern_parent(dirfd, path, name);
	struct kern_entry *e = dir > 0 ? find((uint32_t)dir, name) : NULL;
	uint32_t ino;

	if (!e)
		return dir < 0 ? dir : -ENOENT;
	ino = e->ino;
	if (inode(ino)->type == KERN_DIR) {
		if (!(flags & AT_REMOVEDIR))
			return -EISDIR;
		for (unsigned i = 0; i < KERN_ENTRIES; i++)
			if (kern.m.entry[i].dir == ino)
				return -ENOTEMPTY;
	} else if (flags & AT_REMOVEDIR) {
		return -ENOTDIR;
	}
	memset(e, 0, sizeof(*e));
	inode(ino)->nlink--;
	drop(ino);
	changed((uint32_t)dir, ino);
	return 0;
}

static int make(int dirfd, const char *path, enum kern_type type, mode_t mode)
{
	char name[KERN_NAME];
	int dir = kern_parent(dirfd, path, name);
	uint32_t ino;

	if (dir < 0)
		return dir;
	if (find((uint32_t)dir, name))
		return -EEXIST;
	ino = new_inode(type, mode);
	add_entry((uint32_t)dir, name, ino);
	changed((uint32_t)dir, ino);
	return 0;
}

int kern_mkdir(int dir, const char *path, mode_t mode)
{
	return make(dir, path, KERN_DIR, mode);
}

int kern_symlink(const char *target, int dir, const char *path)
{
	(void)target;
	return make(dir, path, KERN_LINK, 0777);
}

int kern_chmod(uint32_t ino, mode_t mode)
{
	inode(ino)->mode = (uint16_t)(mode & 07777);
	changed(ino, ino);
	return 0;
}

/* ---- content */

static uint32_t new_block(void)
{
	if (kern.next_block >= KERN_BLOCKS)
		FAIL("the workload needs more than %u blocks of the explorer's file system", KERN_BLOCKS);
	return kern.next_block++;
}

/* Is the block in another place too (between the two steps of a reflink)? */
static bool shared(uint32_t b)
{
	unsigned n = 0;

	for (uint32_t i = KERN_ROOT_INO; i < KERN_INODES; i++)
		for (unsigned k = 0; inode(i)->type == KERN_FILE && k < KERN_FILE_BLOCKS; k++)
			n += inode(i)->blk[k] == b;
	return n > 1;
}

static void store(uint32_t ino, uint8_t *dst, const void *src, size_t n)
{
	if (kern.on_data)
		kern.on_data(ino, dst, src, n);
	touch(dst, n, true);
	if (src)
		memcpy(dst, src, n);
	else
		memset(dst, 0, n);
}

/* The block for a store to `in`; *news: the block table changed. */
static uint8_t *for_store(struct kern_inode *in, uint32_t ino, unsigned k, bool *news)
{
	const uint32_t old = in->blk[k];

	if (old && !(kern.fs == KERN_XFS_REFLINK && shared(old)))
		return block(old);
	in->blk[k] = (uint16_t)new_block();
	*news = true;
	if (old) {
		touch(block(old), KERN_BLOCK, false);
		store(ino, block(in->blk[k]), block(old), KERN_BLOCK);
	}
	return block(in->blk[k]);
}

/* What was behind the end of the last block is no content. */
static void zero_tail(uint32_t ino, uint64_t from, uint64_t to)
{
	const unsigned k = (unsigned)(from / KERN_BLOCK);
	const uint64_t end = (uint64_t)(k + 1) * KERN_BLOCK;
	bool news = false;

	if (from % KERN_BLOCK == 0 || k >= KERN_FILE_BLOCKS || !inode(ino)->blk[k])
		return;
	store(ino, for_store(inode(ino), ino, k, &news) + from % KERN_BLOCK, NULL, (to < end ? to : end) - from);
}

ssize_t kern_pwrite(uint32_t ino, const void *src, size_t n, off_t off)
{
	struct kern_inode *in = inode(ino);
	const uint64_t from = (uint64_t)off;
	bool news = false;

	if (n == 0)
		return 0;
	if (from + n > (uint64_t)KERN_FILE_BLOCKS * KERN_BLOCK)
		return -EFBIG;
	if (from > in->size)
		zero_tail(ino, in->size, from);
	for (size_t done = 0, part; done < n; done += part) {
		const uint64_t at = from + done;

		part = KERN_BLOCK - at % KERN_BLOCK;
		part = part < n - done ? part : n - done;
		store(ino, for_store(in, ino, (unsigned)(at / KERN_BLOCK), &news) + at % KERN_BLOCK, (const char *)src + done,
		      part);
	}
	if (from + n > in->size) {
		in->size = from + n;
		news = true;
	}
	if (news)
		changed(ino, ino);
	kern_remap(ino);
	return (ssize_t)n;
}

ssize_t kern_pread(uint32_t ino, void *dst, size_t n, off_t off)
{
	const struct kern_inode *in = inode(ino);
	const uint64_t from = (uint64_t)off;

	if (from >= in->size)
		return 0;
	if (n > in->size - from)
		n = in->size - from;
	for (size_t done = 0, part; done < n; done += part) {
		const uint64_t at = from + done;
		const uint32_t b = in->blk[at / KERN_BLOCK];

		part = KERN_BLOCK - at % KERN_BLOCK;
		part = part < n - done ? part : n - done;
		if (b) {
			touch(block(b) + at % KERN_BLOCK, part, false);
			memcpy((char *)dst + done, block(b) + at % KERN_BLOCK, part);
		} else {
			memset((char *)dst + done, 0, part);
		}
	}
	return (ssize_t)n;
}

int kern_truncate(uint32_t ino, off_t size)
{
	struct kern_inode *in = inode(ino);
	const uint64_t to = (uint64_t)size;

	if (to > (uint64_t)KERN_FILE_BLOCKS * KERN_BLOCK)
		return -EFBIG;
	/* Either way what is behind the end in its block becomes zeros, in place and before the size is committed. */
	if (to != in->size)
		zero_tail(ino, to < in->size ? to : in->size, to < in->size ? in->size : to);
	for (unsigned k = (unsigned)((to + KERN_BLOCK - 1) / KERN_BLOCK); k < KERN_FILE_BLOCKS; k++)
		in->blk[k] = 0;
	in->size = to;
	changed(ino, ino);
	kern_remap(ino);
	return 0;
}

int kern_fallocate(uint32_t ino, int mode, off_t off, off_t len)
{
	struct kern_inode *in = inode(ino);
	const uint64_t from = (uint64_t)off, to = from + (uint64_t)len;
	bool news = false;

	if (to > (uint64_t)KERN_FILE_BLOCKS * KERN_BLOCK)
		return -EFBIG;
	if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
		for (uint64_t at = from, end; at < to; at = end) {
			const unsigned k = (unsigned)(at / KERN_BLOCK);

			end = (uint64_t)(k + 1) * KERN_BLOCK < to ? (uint64_t)(k + 1) * KERN_BLOCK : to;
			if (end - at == KERN_BLOCK)
				in->blk[k] = 0;
			else if (in->blk[k])
				store(ino, for_store(in, ino, k, &news) + at % KERN_BLOCK, NULL, end - at);
		}
	} else if (mode == 0 || mode == FALLOC_FL_KEEP_SIZE) {
		if (mode == 0 && to > in->size)
			zero_tail(ino, in->size, to);
		for (unsigned k = (unsigned)(from / KERN_BLOCK); k <= (unsigned)((to - 1) / KERN_BLOCK); k++)
			if (!in->blk[k])
				in->blk[k] = (uint16_t)new_block();
		if (mode == 0 && to > in->size)
			in->size = to;
	} else {
		return -EOPNOTSUPP;
	}
	changed(ino, ino);
	kern_remap(ino);
	return 0;
}

int kern_clone(uint32_t from, off_t from_off, uint32_t to, off_t to_off, uint64_t len)
{
	struct kern_inode *a = inode(from), *b = inode(to);
	const uint64_t end = (uint64_t)to_off + len;

	if (kern.fs != KERN_XFS_REFLINK)
		return -EOPNOTSUPP;
	if ((from_off | to_off) % KERN_BLOCK || len % KERN_BLOCK || (uint64_t)from_off + len > a->size)
		return -EINVAL;
	if (end > (uint64_t)KERN_FILE_BLOCKS * KERN_BLOCK)
		return -EFBIG;
	if ((uint64_t)to_off > b->size)
		zero_tail(to, b->size, (uint64_t)to_off);
	for (uint64_t k = 0; k < len / KERN_BLOCK; k++)
		b->blk[(uint64_t)to_off / KERN_BLOCK + k] = a->blk[(uint64_t)from_off / KERN_BLOCK + k];
	if (end > b->size)
		b->size = end;
	changed(from, to);
	kern_remap(to);
	return 0;
}

/* EXT4_IOC_RELINK: one operation moves the blocks that the donor has and sets the size. */
int kern_relink(uint32_t from, off_t from_off, uint32_t to, off_t to_off, uint64_t len, uint64_t size)
{
	struct kern_inode *a = inode(from), *b = inode(to);
	const uint64_t end = (uint64_t)to_off + len, tail = ((uint64_t)from_off + len) % KERN_BLOCK;
	const unsigned last = (unsigned)(((uint64_t)from_off + len) / KERN_BLOCK);
	int moved = 0;

	size = size > b->size ? size : b->size;
	if ((from_off | to_off) % KERN_BLOCK || len == 0 || end > size || (tail && end != size) ||
	    (uint64_t)from_off + len > a->size)
		return -EINVAL;
	if (size > (uint64_t)KERN_FILE_BLOCKS * KERN_BLOCK)
		return -EFBIG;
	if ((uint64_t)to_off > b->size)
		zero_tail(to, b->size, (uint64_t)to_off);
	if (tail && a->blk[last])
		store(from, block(a->blk[last]) + tail, NULL, KERN_BLOCK - tail);
	for (uint64_t k = 0; k < (len + KERN_BLOCK - 1) / KERN_BLOCK; k++) {
		uint16_t *donor = &a->blk[(uint64_t)from_off / KERN_BLOCK + k];

		if (!*donor)
			continue;
		b->blk[(uint64_t)to_off / KERN_BLOCK + k] = *donor;
		*donor = 0;
		moved++;
	}
	b->size = size;
	changed(from, to);
	kern_remap(from);
	kern_remap(to);
	return moved;
}

int kern_exchange(uint32_t a, off_t a_off, uint32_t b, off_t b_off, uint64_t len)
{
	if (kern.fs != KERN_XFS_EXCHANGE && kern.fs != KERN_EXT4_RELINK)
		return -EOPNOTSUPP;
	if ((a_off | b_off) % KERN_BLOCK || len % KERN_BLOCK || (uint64_t)a_off + len > inode(a)->size ||
	    (uint64_t)b_off + len > inode(b)->size)
		return -EINVAL;
	for (uint64_t k = 0; k < len / KERN_BLOCK; k++) {
		uint16_t *x = &inode(a)->blk[(uint64_t)a_off / KERN_BLOCK + k];
		uint16_t *y = &inode(b)->blk[(uint64_t)b_off / KERN_BLOCK + k];
		const uint16_t t = *x;

		*x = *y;
		*y = t;
	}
	changed(a, b);
	kern_remap(a);
	kern_remap(b);
	return 0;
}

off_t kern_seek_data(uint32_t ino, off_t off, bool data)
{
	const struct kern_inode *in = inode(ino);
	uint64_t at = (uint64_t)off;

	if (off < 0 || at >= in->size)
		return -ENXIO;
	while (at < in->size && (in->blk[at / KERN_BLOCK] != 0) != data)
		at = (at / KERN_BLOCK + 1) * KERN_BLOCK;
	if (at >= in->size)
		return data ? -ENXIO : (off_t)in->size;
	return (off_t)at;
}

const char *kern_fsck(void)
{
	static uint8_t used[KERN_BLOCKS];
	const char *bad = NULL;

	memset(used, 0, kern.next_block);
	for (uint32_t i = KERN_ROOT_INO; i < KERN_INODES; i++) {
		for (unsigned k = 0; inode(i)->type == KERN_FILE && k < KERN_FILE_BLOCKS; k++) {
			const uint32_t b = inode(i)->blk[k];

			if (b && used[b]++)
				bad = "a block belongs to two files";
		}
	}
	return bad;
}
