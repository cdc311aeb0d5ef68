/* SPDX-License-Identifier: Apache-2.0 */
/* FILEs of our own making: stdio's buffers and formats over the core's reads and writes. */
#ifndef SFS_PRELOAD_STREAM_H
#define SFS_PRELOAD_STREAM_H

#include "preload.h"

#include <stdio.h>

/* The flags of open(2) for fopen's mode. False: the mode is wrong, or only the C library's own FILEs can do it. */
bool pl_stream_flags(const char *mode, int *flags) __attribute__((visibility("hidden")));

/*
 * A FILE over fd, a descriptor of ours; flags as from pl_stream_flags(). NULL with errno set: there is no memory. NULL
 * with *why = SFS_PASS: this C library can't have one, and its own FILE must do.
 */
FILE *pl_stream_new(int fd, int flags, long *why) __attribute__((visibility("hidden")));

/*
 * Make f an ordinary FILE, and its file the kernel's, for what glibc can't do with a FILE of ours (wide characters,
 * freopen). Does nothing to other FILEs. Returns 0 or a negative errno value.
 */
int pl_stream_to_libc(FILE *f) __attribute__((visibility("hidden")));

/* Write n bytes at fd's offset, by the core where the file is ours. Returns how many were written; fewer than n: errno says why. */
size_t pl_write_all(int fd, const char *buf, size_t n) __attribute__((visibility("hidden")));

/*
 * stdout.c: the C library's stdout until something is done with it that could reach descriptor 1; then NULL.
 * pl_stdout_use() ends that time. It returns a negative errno value for the call that is about to use stdout to report.
 */
extern FILE *pl_stdout __attribute__((visibility("hidden")));
void pl_stdout_start(void) __attribute__((visibility("hidden"), cold));
int pl_stdout_use(void) __attribute__((visibility("hidden"), cold));

#endif
