/* SPDX-License-Identifier: Apache-2.0 */
#include "control/sysfs.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool path_of(char path[PATH_MAX], const char *fmt, va_list ap)
{
	int n = vsnprintf(path, PATH_MAX, fmt, ap);

	return n >= 0 && n < PATH_MAX;
}

bool sfs_sysfs_read(char *text, size_t n, const char *fmt, ...)
{
	char path[PATH_MAX];
	ssize_t got = -1;
	va_list ap;
	bool fits;
	int fd;

	va_start(ap, fmt);
	fits = path_of(path, fmt, ap);
	va_end(ap);
	fd = fits ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		got = read(fd, text, n - 1);
		close(fd);
	}
	if (got < 0)
		return false;
	if (got > 0 && text[got - 1] == '\n')
		got--;
	text[got] = 0;
	return true;
}

bool sfs_sysfs_resolve(char path[PATH_MAX], const char *fmt, ...)
{
	char given[PATH_MAX];
	va_list ap;
	bool fits;

	va_start(ap, fmt);
	fits = path_of(given, fmt, ap);
	va_end(ap);
	return fits && realpath(given, path);
}

DIR *sfs_sysfs_dir(const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	bool fits;

	va_start(ap, fmt);
	fits = path_of(path, fmt, ap);
	va_end(ap);
	return fits ? opendir(path) : NULL;
}
