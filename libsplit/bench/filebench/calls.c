/* SPDX-License-Identifier: Apache-2.0 */
/* What filebench calls flow operations. */
#include "filebench.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../timing.h"

int open_file(struct worker *w, const struct set *s, const struct entry *e, int flags)
{
	char path[PATH_SIZE];
	int fd;

	set_path(s, e, path);
	fd = open(path, flags, 0644);
	if (fd < 0)
		fail(path);
	w->ops++;
	return fd;
}

void close_file(struct worker *w, int fd)
{
	if (close(fd) < 0)
		fail("close");
	w->ops++;
}

void read_whole(struct worker *w, int fd)
{
	ssize_t r;

	do
		r = read(fd, w->buf, IO_SIZE);
	while (r > 0);
	if (r < 0)
		fail("read");
	w->ops++;
}

static void put(struct worker *w, int fd, size_t n)
{
	if (write(fd, w->buf, n) != (ssize_t)n)
		fail("write");
}

void write_whole(struct worker *w, int fd, uint32_t size)
{
	for (uint32_t done = 0; done < size;) {
		const uint32_t n = size - done < IO_SIZE ? size - done : IO_SIZE;

		put(w, fd, n);
		done += n;
	}
	w->ops++;
}

void append_random(struct worker *w, int fd)
{
	if (lseek(fd, 0, SEEK_END) < 0)
		fail("lseek");
	put(w, fd, random_below(w, APPEND) + 1);
	w->ops++;
}

void force(struct worker *w, int fd)
{
	if (fsync(fd) < 0)
		fail("fsync");
	w->ops++;
}

void stat_file(struct worker *w, const struct set *s, const struct entry *e)
{
	char path[PATH_SIZE];
	struct stat st;

	set_path(s, e, path);
	if (stat(path, &st) < 0)
		fail(path);
	w->ops++;
}

void delete_file(struct worker *w, const struct set *s, const struct entry *e)
{
	char path[PATH_SIZE];

	set_path(s, e, path);
	if (unlink(path) < 0)
		fail(path);
	w->ops++;
}
