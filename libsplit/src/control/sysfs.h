/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what the kernel shows as small files and links. What is not there, or too long, is no error: it says nothing. */
#ifndef SFS_SYSFS_H
#define SFS_SYSFS_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The file's text without the newline at its end, cut off at n - 1 bytes. */
bool sfs_sysfs_read(char *text, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The path without links. */
bool sfs_sysfs_resolve(char path[PATH_MAX], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* NULL when there is none; the caller closes it. */
DIR *sfs_sysfs_dir(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
