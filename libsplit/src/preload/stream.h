/* SPDX-License-Identifier: Apache-2.0 */
/* FILEs of our own making: stdio's buffers and formats over the core's reads and writes. */
#ifndef SFS_PRELOAD_STREAM_H
#define SFS_PRELOAD_STREAM_H

#include "preload.h"

#include <stdio.h>

/*
 * What fopen's mode asks of open(2), in *flags. False: it is wrong, or asks for what only the C library's own FILEs can
 * do.
 */
bool pl_stream_flags(const char *mode, int *flags) __attribute__((visibility("hidden")));

/*
 * A FILE over fd, a descriptor of ours; flags as by pl_stream_flags(). NULL with errno set when there is no memory, and
 * with *why = SFS_PASS when this C library can't have one: then the C library's own must do.
 */
FILE *pl_stream_new(int fd, int flags, long *why) __attribute__((visibility("hidden")));

/*
 * Make f fit for what glibc can't do with such a FILE (wide characters, freopen): from the next such call on it is an
 * ordinary one, and its file the kernel's. Returns 0 or a negative errno value; for other FILEs it does nothing.
 */
int pl_stream_to_libc(FILE *f) __attribute__((visibility("hidden")));

/*
 * stdout.c: the C library's stdout while nothing has been done with it that could reach descriptor 1, NULL from then
 * on. pl_stdout_use() ends that: a negative errno value is for the call that is about to use stdout.
 */
extern FILE *pl_stdout __attribute__((visibility("hidden")));
void pl_stdout_start(void) __attribute__((visibility("hidden"), cold));
int pl_stdout_use(void) __attribute__((visibility("hidden"), cold));

#endif
