/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FILEs. A regular file of ours gets a FILE that calls us (stream.c). A FILE of the C library's own reads and writes
 * inside the C library, where no wrapper sees it. So the file under it is the kernel's for good: it is made true when
 * the FILE comes into being, and nothing is staged for it again. The same holds for a file that takes the number of a
 * standard stream, or of a descriptor under such a FILE, by dup2 or open: the number is marked.
 */
#include "stream.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define MARKS 65536 /* higher descriptors count as marked */

static uint64_t marks[MARKS / 64];

void pl_stdio_mark(int fd)
{
	if (fd >= 0 && fd < MARKS)
		__atomic_fetch_or(&marks[fd / 64], 1ull << (fd % 64), __ATOMIC_RELAXED);
}

static void unmark(int fd)
{
	if (fd >= 0 && fd < MARKS)
		__atomic_fetch_and(&marks[fd / 64], ~(1ull << (fd % 64)), __ATOMIC_RELAXED);
}

bool pl_stdio_marked(int fd)
{
	if (fd <= 2 && fd != 1)
		return true;
	if (fd < 0 || fd >= MARKS)
		return true;
	return __atomic_load_n(&marks[fd / 64], __ATOMIC_RELAXED) >> (fd % 64) & 1;
}

/* The C library is about to close a FILE. */
static void unmade(FILE *f)
{
	int fd = f ? REAL(fileno)(f) : -1;

	if (fd < 0)
		return;
	sfs_forget(fd);
	if (fd > 2)
		unmark(fd);
}

/*
 * Give the descriptor under a FILE that the C library has just opened an open file description with O_DSYNC, where the
 * volume's mode promises that a completed call is durable. Nobody but the FILE knows the description yet.
 */
static int write_through(int fd)
{
	char path[32] = "/proc/self/fd/", digits[12];
	int flags = sys_fcntl(fd, F_GETFL, 0), at = 14, n = 0, again, err;

	if (flags < 0 || flags & O_DSYNC || (flags & O_ACCMODE) == O_RDONLY)
		return flags < 0 ? flags : 0;
	for (int rest = fd; n == 0 || rest; rest /= 10)
		digits[n++] = (char)('0' + rest % 10);
	while (n)
		path[at++] = digits[--n];
	again = sys_openat(AT_FDCWD, path, (flags & (O_ACCMODE | O_APPEND)) | O_DSYNC | O_CLOEXEC, 0);
	if (again < 0)
		return again;
	err = (int)sys_lseek(again, sys_lseek(fd, 0, SEEK_CUR), SEEK_SET);
	if (err >= 0)
		err = (int)sys_call3(SYS_dup3, again, fd, sys_fcntl(fd, F_GETFD, 0) & FD_CLOEXEC ? O_CLOEXEC : 0);
	sys_close(again);
	return err < 0 ? err : 0;
}

/*
 * The C library has just made f, or failed to (NULL). A FILE that lacks the bytes that are staged for its file is worse
 * than none. fresh: the C library has opened the file. created: it may have created or truncated it.
 */
static long made(FILE *f, bool fresh, bool created)
{
	const int fd = f ? REAL(fileno)(f) : -1;
	int err;

	if (fd < 0)
		return (long)f;
	pl_stdio_mark(fd);
	sfs_adopt(fd);
	err = sfs_ours(fd) ? sfs_make_true(fd, true) : 0;
	if (err >= 0 && fresh && sfs_ours(fd) && sfs_wants_dsync(fd))
		err = write_through(fd);
	if (err >= 0 && created)
		err = sfs_fd_durable(fd);
	if (likely(err >= 0))
		return (long)f;
	unmade(f);
	REAL(fclose)(f);
	return err;
}

/* "w" truncates the file inside the C library. */
static long open_by_libc(const struct request *q, const char *mode)
{
	const int err = *mode == 'w' ? pl_give_up(pl_path(q)) : pl_path_true(AT_FDCWD, pl_path(q), 0);

	return err < 0 ? err : made((FILE *)pl_make_new(q), true, *mode != 'r');
}

/* The C library's own FILE over fd, whose file is the kernel's from now on. 0: there is none, and errno is set. */
static long over_by_libc(int fd, const char *mode)
{
	return made(REAL(fdopen)(fd, mode), false, false);
}

/* A FILE over fd, which has been opened for it. When there can be none fd is closed. */
static long over(int fd, const char *mode, int flags)
{
	long err = SFS_PASS, f = 0;

	if (sfs_ours(fd)) {
		err = pl_stdio_marked(fd) ? pl_hand_over(fd) : 0;
		if (err >= 0)
			f = (long)pl_stream_new(fd, flags, &err);
	}
	if (!f)
		f = err == SFS_PASS ? over_by_libc(fd, mode) : err;
	if (f == 0 || f == err)
		pl_release(fd);
	return f;
}

long do_fopen(const struct request *q)
{
	const char *mode = (const char *)pl_next(q);
	int flags, fd;

	if (!pl_stream_flags(mode, &flags))
		return open_by_libc(q, mode);
	fd = sfs_openat(AT_FDCWD, pl_path(q), flags, 0666);
	return fd < 0 ? fd : over(fd, mode, flags);
}

long do_freopen(const struct request *q)
{
	const char *path = pl_path(q), *mode = (const char *)q->a[1];
	FILE *f = (FILE *)q->a[2];
	long err = pl_stream_to_libc(f);

	unmade(f);
	if (err >= 0 && path && *mode == 'w')
		err = pl_give_up(path);
	if (err >= 0)
		return made((FILE *)pl_make_open(q), path != NULL, path && *mode != 'r');
	REAL(fclose)(f); /* as freopen does when it fails */
	return err;
}

/* fdopen over a descriptor of ours, if the mode fits it. If not, the C library is to say so. */
static FILE *stream_over(int fd, const char *mode, long *err)
{
	const int have = sys_fcntl(fd, F_GETFL, 0), access = have & O_ACCMODE;
	int flags;

	*err = SFS_PASS;
	if (have < 0 || !pl_stream_flags(mode, &flags) || (access != O_RDWR && (flags & O_ACCMODE) != access))
		return NULL;
	if (flags & O_APPEND && !(have & O_APPEND)) {
		*err = sfs_fcntl(fd, F_SETFL, have | O_APPEND);
		if (*err < 0)
			return NULL;
	}
	return pl_stream_new(fd, flags, err);
}

long do_fdopen(const struct request *q)
{
	const int fd = pl_fd(q);
	const char *mode = (const char *)q->a[1];
	long err = SFS_PASS;
	FILE *f = sfs_ours(fd) ? stream_over(fd, mode, &err) : NULL;

	if (f || err != SFS_PASS)
		return f ? (long)f : err;
	err = sfs_ours(fd) ? pl_hand_over(fd) : 0;
	return err < 0 ? err : over_by_libc(fd, mode);
}

long do_tmpfile(const struct request *q)
{
	return made((FILE *)pl_make_new(q), true, false);
}

/* A FILE of ours closes its descriptor by calling us. */
long do_fclose(const struct request *q)
{
	FILE *f = (FILE *)q->a[0];
	const int fd = f ? REAL(fileno)(f) : -1;

	if (!sfs_ours(fd) || pl_stdio_marked(fd) || f == pl_stdout)
		unmade(f);
	return pl_make(q);
}

/* It calls fopen inside the C library. */
long do_setmntent(const struct request *q)
{
	return open_by_libc(q, (const char *)pl_next(q));
}

long do_unmade(const struct request *q)
{
	unmade((FILE *)q->a[0]);
	return pl_make(q);
}
