/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FILEs of our own making. The C library's FILEs read and write by calls inside the C library, which no wrapper sees.
 * fopencookie(3), which glibc and musl have, makes a FILE that calls us back. Such a FILE lacks a descriptor: fileno(3)
 * fails, and freopen(3) with it. So the number is stored where the C library looks for it, and fileno itself has to
 * prove that this was the place. Where it does not, this process has no FILEs of ours.
 *
 * A FILE works by the descriptor's number, as in the C library. So dup2 onto the number, or a close that the FILE does
 * not know of, mean what they always mean.
 */
#include "stream.h"

#include <stdint.h>
#include <unistd.h>

#define FD_OF(cookie) ((int)(intptr_t)(cookie))

/*
 * Where musl's struct _IO_FILE has its fd (-1 in a FILE of fopencookie) and its lock (-1 while the process has one
 * thread). glibc's fields are public: _fileno is -2 in a FILE of fopencookie, and a bit of _flags2 says that the
 * process has threads.
 */
#define MUSL_FD		120
#define MUSL_LOCK	140
#define GLIBC_NEED_LOCK 128

enum libc { UNKNOWN, GLIBC, MUSL, NEITHER };
static enum libc libc;

/* An unused FILE, in which the C library keeps up to date whether FILEs need locking. */
static FILE *witness;

bool pl_stream_flags(const char *mode, int *flags)
{
	bool plus = false;

	if (*mode != 'r' && *mode != 'w' && *mode != 'a')
		return false;
	*flags = *mode == 'r' ? 0 : *mode == 'w' ? O_CREAT | O_TRUNC : O_CREAT | O_APPEND;
	/* glibc looks at seven letters, musl at all of them. */
	for (int i = 1; mode[i]; i++) {
		if (i > 6)
			return false;
		switch (mode[i]) {
		case '+':
			plus = true;
			break;
		case 'x':
			*flags |= O_EXCL;
			break;
		case 'e':
			*flags |= O_CLOEXEC;
			break;
		case 'b':
		case 't':
			break;
		default:
			return false; /* m, c and ",ccs=" of glibc, and what we do not know */
		}
	}
	*flags |= plus ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
	return true;
}

static ssize_t stream_read(void *cookie, char *buf, size_t n)
{
	const int fd = FD_OF(cookie);
	ssize_t r = sfs_ours(fd) ? sfs_read(fd, buf, n, -1) : SFS_PASS;

	if (r == SFS_PASS) {
		r = REAL(read)(fd, buf, n);
		sfs_changed(fd);
		return r;
	}
	return pl_ret(r);
}

/*
 * Writes all, or fails with errno set: the C libraries that call this do not write the rest. Returns how many bytes were written.
 */
size_t pl_write_all(int fd, const char *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = sfs_ours(fd) ? sfs_write(fd, buf + done, n - done, -1) : SFS_PASS;

		if (r == SFS_PASS) {
			r = REAL(write)(fd, buf + done, n - done);
			sfs_changed(fd);
		} else {
			r = pl_ret(r);
		}
		if (r < 0)
			break;
		done += (size_t)r;
	}
	return done;
}

/* On failure glibc wants the number of bytes written, musl -1. */
static ssize_t stream_write(void *cookie, const char *buf, size_t n)
{
	const size_t done = pl_write_all(FD_OF(cookie), buf, n);

	return done < n && libc == MUSL ? -1 : (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *pos, int whence)
{
	const int fd = FD_OF(cookie);
	off_t r = sfs_ours(fd) ? sfs_lseek(fd, *pos, whence) : SFS_PASS;

	r = r == SFS_PASS ? REAL(lseek)(fd, *pos, whence) : pl_ret(r);
	if (r < 0)
		return -1;
	*pos = r;
	return 0;
}

static int stream_close(void *cookie)
{
	const int fd = FD_OF(cookie);
	int r = sfs_close(fd);

	return r == SFS_PASS ? REAL(close)(fd) : (int)pl_ret(r);
}

/* For a FILE on trial: its descriptor stays open. */
static int stream_leave(void *cookie)
{
	(void)cookie;
	return 0;
}

static int *musl(FILE *f, int offset)
{
	return (int *)((char *)f + offset);
}

/* Store the descriptor's number in the FILE. */
static bool set_fd(FILE *f, int fd)
{
	int *at[] = {[GLIBC] = &f->_fileno, [MUSL] = musl(f, MUSL_FD)};
	const int unset[] = {[GLIBC] = -2, [MUSL] = -1};

	for (enum libc l = GLIBC; l <= MUSL; l++) {
		if ((libc != UNKNOWN && libc != l) || *at[l] != unset[l])
			continue;
		*at[l] = fd;
		if (REAL(fileno)(f) == fd) {
			libc = l;
			return true;
		}
		*at[l] = unset[l];
	}
	return false;
}

/*
 * The C library locks a FILE of fopencookie for every character, because a callback may start the first other thread.
 * Our callbacks start no thread that uses stdio.
 */
static void lock_when_needed(FILE *f)
{
	if (libc == GLIBC && !(witness->_flags2 & GLIBC_NEED_LOCK))
		f->_flags2 &= ~GLIBC_NEED_LOCK;
	else if (libc == MUSL && *musl(witness, MUSL_LOCK) == -1 && *musl(f, MUSL_LOCK) == 0)
		*musl(f, MUSL_LOCK) = -1;
}

/* An ordinary FILE without a descriptor, never closed; NULL when there can be none. */
static FILE *spare(void)
{
	FILE *f = REAL(fopen)("/dev/null", "re");

	if (!f)
		return NULL;
	REAL(close)(REAL(fileno)(f));
	if (libc == GLIBC)
		f->_fileno = -1;
	else
		*musl(f, MUSL_FD) = -1;
	return f;
}

/* Find out, with the first FILE, which C library this is and whether its FILEs are as we know them. */
static bool recognized(int fd)
{
	const cookie_io_functions_t trial = {stream_read, stream_write, stream_seek, stream_leave};
	FILE *f;

	if (libc == NEITHER || !pl_found(PL_fopencookie))
		return false;
	if (witness)
		return true;
	f = REAL(fopencookie)((void *)(intptr_t)fd, "r", trial);
	if (!f)
		return false;
	if (!set_fd(f, fd))
		libc = NEITHER;
	REAL(fclose)(f);
	if (libc != NEITHER)
		__atomic_store_n(&witness, spare(), __ATOMIC_RELEASE);
	return witness != NULL;
}

FILE *pl_stream_new(int fd, int flags, long *why)
{
	static const char *const modes[2][4] = {{"r", "w", "r+", "r+"}, {"r", "a", "a+", "a+"}};
	const char *mode = modes[!!(flags & O_APPEND)][flags & O_ACCMODE];
	const cookie_io_functions_t calls = {stream_read, stream_write, stream_seek, stream_close};
	FILE *f;

	*why = SFS_PASS;
	if (!recognized(fd))
		return NULL;
	*why = 0;
	f = REAL(fopencookie)((void *)(intptr_t)fd, mode, calls);
	if (!f)
		return NULL;
	if (!set_fd(f, fd)) {
		/* Not seen so far, as the first FILE was right. Closing f would close fd, so f is left. */
		*why = -ENOTSUP;
		return NULL;
	}
	lock_when_needed(f);
	/* musl's fdopen knows "e", glibc's does not. */
	if (libc == MUSL && flags & O_CLOEXEC)
		sys_fcntl(fd, F_SETFD, FD_CLOEXEC);
	/* glibc seeks to the end at once, musl with the first write. */
	if (libc == GLIBC && flags & O_APPEND && (flags & O_ACCMODE) == O_WRONLY)
		sfs_lseek(fd, 0, SEEK_END);
	return f;
}

/* glibc's mark of a FILE without wide characters. Of those only ours have a descriptor. */
#define NO_WIDE ((void *)-1)

static bool glibc_stream(const FILE *f)
{
	return libc == GLIBC && (void *)f->_wide_data == NO_WIDE && f->_fileno >= 0;
}

int pl_stream_to_libc(FILE *f)
{
	FILE *donor;
	int fd, err;

	if (!glibc_stream(f))
		return 0;
	fd = f->_fileno;
	err = sfs_ours(fd) ? pl_hand_over(fd) : 0;
	if (err < 0)
		return err;
	pl_stdio_mark(fd);
	/* fopencookie leaves the wide half out. An ordinary FILE is given up for its own. */
	donor = spare();
	if (!donor)
		return -EBADF;
	REAL(flockfile)(f);
	if (glibc_stream(f)) {
		f->_wide_data = donor->_wide_data;
		f->_mode = f->_IO_buf_base ? -1 : 0;
	}
	REAL(funlockfile)(f);
	return 0;
}
