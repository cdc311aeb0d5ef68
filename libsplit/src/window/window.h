/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of a file: the file mapped as one contiguous range from offset 0, beyond its end as far as `len` (ctFS: the MMU is the index;
 * SplitFS paper section 3.2 calls it the collection of mmaps).
 */
#ifndef SFS_WINDOW_H
#define SFS_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sfs_window {
	uint8_t *base; /* NULL: there is none, and the kernel reads for us */
	uint64_t len;
	uint64_t tried; /* size when it was last mapped: without success, or not all of it, the rest is read by the kernel */
	uint64_t cold;	/* bytes that the kernel has read for us since it was mapped */
	uint64_t cold_stores; /* and those that it has stored in place of us */
	uint64_t judged;      /* on DAX, the size when it was looked whether it is: */
	bool scattered; /* most of it lies so that it can be mapped by 4 KiB only, and a fault costs as much as several calls; */
	bool written;	/* and has no block that would become one of the file when something is written to it */
	uint64_t populated; /* in-place stores: everything before this offset has been faulted in */
	uint64_t last_end;  /* end of the last in-place store */
	uint32_t stores;    /* made in place since the file was forced */
	bool few_stores;    /* before that they were few */
	bool dense;	    /* no holes below the size */
	bool dense_known;
};

/*
 * Each page that the kernel has written back costs the next store to it a fault, in which the file system prepares for it to be dirty: about
 * as much as two of the kernel's own writes. So where a file is forced after so few stores that most of them meet such a page, the kernel
 * had better write. (On persistent memory and tmpfs nothing is written back.)
 */
#define SFS_STORES_FEW 64u

static inline void sfs_window_forced(struct sfs_window *w)
{
	w->few_stores = w->stores < SFS_STORES_FEW;
	w->stores = 0;
}

/*
 * Where a page is mapped by 4 KiB, the fault for it costs as much as two calls. From 16 KiB on a call takes several of them, and the copy most of the
 * rest: the kernel had better make it, until that has been so often that faults would have paid.
 */
#define SFS_COLD_LONG	(16ul << 10)
#define SFS_COLD_PASSES 4u

/* Is the kernel to make a call of n bytes, when it has made calls of so many? */
static inline bool sfs_window_cold(const struct sfs_window *w, size_t n, uint64_t made)
{
	return w->scattered && n >= SFS_COLD_LONG && made < SFS_COLD_PASSES * w->judged;
}
/* The same of a store at pos, where nothing has to be allocated. */
static inline bool sfs_window_stores_cold(const struct sfs_window *w, uint64_t pos, size_t n)
{
	return sfs_window_cold(w, n, w->cold_stores) && w->written && pos + n <= w->judged;
}

/* Does a file of `size` bytes need another window than the one that is there? */
static inline bool sfs_window_short(const struct sfs_window *w, uint64_t size)
{
	return !w->base || w->len < size;
}
/* Map the file of `size` bytes, or more of it; there is no window, or one that is long enough. On failure there is none. */
void sfs_window_map(struct sfs_window *w, bool dax, bool writable, int fd, uint64_t size);
void sfs_window_unmap(struct sfs_window *w);
/*
 * The same while a thread may still store to it: its addresses stay taken, without memory behind them. The address space of one window is lost
 * for good, which is seldom: somebody closed or truncated a file in the middle of another thread's write.
 */
void sfs_window_bar(struct sfs_window *w);
/* Is the window to be mapped anew before the file of `size` bytes is served? */
static inline bool sfs_window_due(const struct sfs_window *w, uint64_t size)
{
	return w->tried != size;
}
/*
 * No holes below size? Only then may the window be loaded from or stored to: a page fault on a hole allocates, and on a full
 * file system that is SIGBUS instead of ENOSPC.
 */
bool sfs_window_dense(struct sfs_window *w, int fd, uint64_t size);
/* On DAX: how the file lies. A file that grows is looked at again when it is twice as long. */
void sfs_window_judge(struct sfs_window *w, int fd, uint64_t size);
/* Blocks of the file have changed in a way that is not known here. */
static inline void sfs_window_unknown(struct sfs_window *w)
{
	w->dense_known = w->scattered = w->written = false;
	w->judged = 0;
}
/* The size has changed, and nothing else: the kernel walks over what is new and not over the whole file. */
void sfs_window_resized(struct sfs_window *w, int fd, uint64_t from, uint64_t to);
/* Has it been looked at since the file had this size? */
static inline bool sfs_window_looked(const struct sfs_window *w, uint64_t size)
{
	return (w->base && w->len >= size) || w->tried == size;
}

#endif
