/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between libsplit.so, which has the core, and libsplitfs.so, which programs link with: a table that the one exports
 * and the other finds at the start of the program, if it is there. The two may be of different releases: a table has
 * at least `entries` functions, entries are only added at its end, and what a function does is never changed.
 */
#ifndef SPLITFS_CORE_H
#define SPLITFS_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Instead of an errno value: the range is to be copied this time, whether or not the program has asked for copies. */
#define SPLITFS_CORE_COPY (-65541)

struct splitfs_range; /* splitfs.h */

/* Functions return 0 or a negative errno value. */
struct splitfs_core {
	uint32_t entries;
	/* *p is NULL where *got is 0. -ENOTSUP: not without a copy. */
	int (*peek)(int fd, off_t off, size_t len, const void **p, size_t *got);
	/* -EINVAL: it is none of the core's. */
	int (*unpeek)(const void *p);
#define SPLITFS_CORE_PEEK 2u /* entries of a table that has all of these */
	/* The pool's number; -ENOTSUP: the directory is on no volume that the core serves. */
	int (*pool_create)(int dirfd, size_t size);
	/* -EINVAL: it is none of the core's, here and in the next three. */
	int (*pool_destroy)(int pool);
	int (*alloc)(int pool, off_t off, size_t len, void **p);
	int (*free)(void *buf);
	ssize_t (*patch)(int fd, void *buf, size_t len, off_t off);
#define SPLITFS_CORE_PATCH 7u
	/* -ENOTSUP: not all of the files are served so by the core. */
	int (*write_atomic)(const struct splitfs_range *ranges, int n);
#define SPLITFS_CORE_ATOMIC 8u
	/* -ENOTSUP as above. */
	int (*swap)(int fd1, off_t off1, int fd2, off_t off2, size_t len);
#define SPLITFS_CORE_SWAP 9u
};
#define SPLITFS_CORE_POOLS_END (1 << 30) /* its pools have smaller numbers */

#endif
