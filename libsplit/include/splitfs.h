/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of SplitFS volumes without copying: splitfs_peek(3). Link with -lsplitfs (pkg-config splitfs). In a process
 * that has libsplit.so preloaded these calls and read(2) and write(2) work on the same files at the same time.
 */
#ifndef SPLITFS_H
#define SPLITFS_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The bytes of the file from `off` on, `len` of them or as many as there are, as they are at this moment. They stay
 * so, and readable, until splitfs_unpeek(), whatever becomes of the file. *got: how many, as pread(2) counts. NULL:
 * errno says why.
 */
const void *splitfs_peek(int fd, off_t off, size_t len, size_t *got);

/*
 * The same as up to `max` pieces in iov, each of which is given back by itself. Returns how many there are, 0 at the
 * end of the file, or -1 with errno.
 */
int splitfs_peekv(int fd, off_t off, size_t len, struct iovec *iov, int max, size_t *got);

/* Give back what splitfs_peek() returned, or one piece of splitfs_peekv(). 0, or -1 with errno. */
int splitfs_unpeek(const void *p);

/*
 * A pool of buffers that can become parts of files without being copied: `size` bytes at most, out of the staging space of the
 * volume that the directory or file is on. Returns its number, or -1 with errno.
 */
int splitfs_pool_create(int dirfd, size_t size);

/* The pool has no buffers any more. 0, or -1 with errno. */
int splitfs_pool_destroy(int pool);

/* A buffer of `len` bytes, meant for a file from `off` on: its address is congruent to `off` modulo 4096. NULL: errno. */
void *splitfs_alloc(int pool, off_t off, size_t len);

/* Give the buffer back. 0, or -1 with errno. */
int splitfs_free(void *buf);

/*
 * The first `len` bytes of the buffer become the file's from `off` on, as by pwrite(2), but whole blocks are not copied. From
 * then on the buffer can't be stored to; it stays readable, and what it is, until it is freed. Returns `len`, or less as pwrite(2)
 * does, or -1 with errno, and then the buffer is as it was.
 */
ssize_t splitfs_patch(int fd, void *buf, size_t len, off_t off);

/*
 * All of these bytes are written to their files, of one volume, in one step: whoever reads one of the files sees all of what is
 * written to it or nothing, and a crash leaves all of it in all files or nothing. In strict mode alone; elsewhere it is ENOTSUP. 0,
 * or -1 with errno, and then nothing was written.
 */
struct splitfs_range {
	int fd;
	off_t off;
	const void *buf;
	size_t len;
};
int splitfs_write_atomic(const struct splitfs_range *ranges, int n);

/*
 * The two ranges of two files of a volume change places, in one step for who reads or writes them, and for a crash. 0, or -1 with
 * errno, and then nothing has changed.
 */
int splitfs_swap(int fd1, off_t off1, int fd2, off_t off2, size_t len);

/*
 * What is done where a file can't be served without a copy: without this flag it is ENOTSUP, with it the file is
 * copied to memory, and buffers to the file.
 */
#define SPLITFS_COPY 0x1u

/* Sets the flags of the process; returns what they were. Other bits than those above are ignored. */
unsigned splitfs_flags(unsigned flags);

#ifdef __cplusplus
}
#endif

#endif
