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
 * What is done where a file can't be served without a copy: without this flag it is ENOTSUP, with it the file is
 * copied to memory.
 */
#define SPLITFS_COPY 0x1u

/* Sets the flags of the process; returns what they were. Other bits than those above are ignored. */
unsigned splitfs_flags(unsigned flags);

#ifdef __cplusplus
}
#endif

#endif
