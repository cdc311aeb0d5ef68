/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FILEs. A regular file of ours gets one that calls us (stream.c). A FILE of the C library's own making reads and writes inside
 * itself where no wrapper sees it, so the file under it is the kernel's for good: made true when the FILE comes into being, and
 * never staged again. So is a file that takes the number of a standard stream, or of a descriptor under such a FILE, by dup2 or
 * by open.
 */
#include "stream.h"

#include <execinfo.h>
#include <mntent.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define MARKS 65536 /* descriptors above this are never served under a FILE's number */

static uint64_t marks[MARKS / 64];

void pl_stdio_mark(int fd)
{
	if (fd >= 0 && fd < MARKS)
		__atomic_fetch_or(&marks[fd / 64], 1ull << (fd % 64), __ATOMIC_RELAXED);
}

void pl_stdio_unmark(int fd)
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

/* A FILE is about to be closed by the C library. */
static void unmade(FILE *f)
{
	int fd = f ? REAL(fileno)(f) : -1;

	if (fd < 0)
		return;
	sfs_forget(fd);
	if (fd > 2)
		pl_stdio_unmark(fd);
}

/*
 * The descriptor under a FILE that the C library has just opened gets an open file description that writes through, where the
 * volume's mode promises that a completed call is durable: nobody but the FILE knows the description yet.
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
 * A FILE has just been made, or NULL. Without the bytes that are staged for its file it would be worse than none. fresh: the C
 * library has opened the file, and with created also made it, or truncated it.
 */
static FILE *made(FILE *f, bool fresh, bool created)
{
	int fd, err;

	if (!f)
		return f;
	fd = REAL(fileno)(f);
	if (fd < 0)
		return f;
	pl_stdio_mark(fd);
	sfs_adopt(fd);
	err = sfs_ours(fd) ? sfs_make_true(fd, true) : 0;
	if (err >= 0 && fresh && sfs_ours(fd) && sfs_wants_dsync(fd))
		err = write_through(fd);
	if (err >= 0 && created)
		err = sfs_fd_durable(fd);
	if (unlikely(err < 0)) {
		unmade(f);
		REAL(fclose)(f);
		pl_ret(err);
		return NULL;
	}
	return f;
}

static FILE *open_by_libc(const char *path, const char *mode)
{
	int err = *mode == 'w' ? pl_give_up(path) : 0;

	if (err < 0) {
		pl_ret(err);
		return NULL;
	}
	return made(REAL(fopen)(path, mode), true, *mode != 'r');
}

/* A FILE over fd, which has been opened for it; when there can be none, fd is closed. */
static FILE *over(int fd, const char *mode, int flags)
{
	long err = SFS_PASS;
	FILE *f = NULL;

	if (sfs_ours(fd)) {
		err = pl_stdio_marked(fd) ? pl_hand_over(fd) : 0;
		if (err >= 0)
			f = pl_stream_new(fd, flags, &err);
	}
	if (!f && err == SFS_PASS)
		f = made(REAL(fdopen)(fd, mode), false, false);
	else if (!f && err < 0)
		pl_ret(err);
	if (!f) {
		err = errno;
		pl_release(fd);
		errno = (int)err;
	}
	return f;
}

WRAPPER FILE *w_fopen(const char *path, const char *mode)
{
	int flags, fd;

	if (likely(!sfs_active()))
		return REAL(fopen)(path, mode);
	if (!pl_stream_flags(mode, &flags))
		return open_by_libc(path, mode);
	fd = sfs_openat(AT_FDCWD, path, flags, 0666);
	if (fd == SFS_PASS)
		return open_by_libc(path, mode);
	if (fd < 0) {
		pl_ret(fd);
		return NULL;
	}
	return over(fd, mode, flags);
}
EXPORT(fopen, w_fopen);
EXPORT(fopen64, w_fopen);

WRAPPER FILE *w_freopen(const char *path, const char *mode, FILE *f)
{
	int err;

	if (likely(!sfs_active()))
		return REAL(freopen)(path, mode, f);
	err = pl_stream_to_libc(f);
	unmade(f);
	if (err >= 0 && path && *mode == 'w')
		err = pl_give_up(path);
	if (err < 0) {
		REAL(fclose)(f); /* as freopen does when it fails */
		pl_ret(err);
		return NULL;
	}
	return made(REAL(freopen)(path, mode, f), path != NULL, path && *mode != 'r');
}
EXPORT(freopen, w_freopen);
EXPORT(freopen64, w_freopen);

/* fdopen over a descriptor of ours, where the mode fits it; what does not is the C library's to judge. */
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

WRAPPER FILE *w_fdopen(int fd, const char *mode)
{
	long err = 0;
	FILE *f;

	if (!sfs_ours(fd))
		return sfs_active() ? made(REAL(fdopen)(fd, mode), false, false) : REAL(fdopen)(fd, mode);
	f = stream_over(fd, mode, &err);
	if (!f && err == SFS_PASS) {
		err = pl_hand_over(fd);
		if (err >= 0)
			return made(REAL(fdopen)(fd, mode), false, false);
	}
	if (!f && err < 0)
		pl_ret(err);
	return f;
}
EXPORT(fdopen, w_fdopen);

WRAPPER FILE *w_tmpfile(void)
{
	return sfs_active() ? made(REAL(tmpfile)(), true, false) : REAL(tmpfile)();
}
EXPORT(tmpfile, w_tmpfile);
EXPORT(tmpfile64, w_tmpfile);

/* A FILE that calls us closes its descriptor that way. */
WRAPPER int w_fclose(FILE *f)
{
	if (unlikely(sfs_active())) {
		const int fd = f ? REAL(fileno)(f) : -1;

		if (!sfs_ours(fd) || pl_stdio_marked(fd) || f == pl_stdout)
			unmade(f);
	}
	return REAL(fclose)(f);
}
EXPORT(fclose, w_fclose);

/* fopen and fclose inside the C library. */
WRAPPER FILE *w_setmntent(const char *path, const char *mode)
{
	int err;

	if (likely(!sfs_active()))
		return REAL(setmntent)(path, mode);
	err = *mode == 'w' ? pl_give_up(path) : pl_path_true(AT_FDCWD, path, 0);
	if (err < 0) {
		pl_ret(err);
		return NULL;
	}
	return made(REAL(setmntent)(path, mode), true, *mode != 'r');
}
EXPORT(setmntent, w_setmntent);

WRAPPER int w_endmntent(FILE *f)
{
	if (unlikely(sfs_active()))
		unmade(f);
	return REAL(endmntent)(f);
}
EXPORT(endmntent, w_endmntent);

WRAPPER int w_pclose(FILE *f)
{
	if (unlikely(sfs_active()))
		unmade(f);
	return REAL(pclose)(f);
}
EXPORT(pclose, w_pclose);

WRAPPER void w_backtrace_symbols_fd(void *const *frames, int n, int fd)
{
	if (sfs_ours(fd))
		sfs_make_true(fd, false);
	REAL(backtrace_symbols_fd)(frames, n, fd);
	if (sfs_ours(fd))
		sfs_changed(fd);
}
EXPORT(backtrace_symbols_fd, w_backtrace_symbols_fd);

/* dprintf writes inside the C library, and keeps nothing. */
WRAPPER int w_vdprintf(int fd, const char *format, va_list ap)
{
	TRUE_THEN(fd, REAL(vdprintf)(fd, format, ap));
}
EXPORT(vdprintf, w_vdprintf);

WRAPPER int w_dprintf(int fd, const char *format, ...)
{
	COLLECTED(int, format, w_vdprintf(fd, format, ap));
}
EXPORT(dprintf, w_dprintf);

WRAPPER int w_vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	TRUE_THEN(fd, REAL_AS(int (*)(int, int, const char *, va_list), __vdprintf_chk)(fd, flag, format, ap));
}
EXPORT(__vdprintf_chk, w_vdprintf_chk);

WRAPPER int w_dprintf_chk(int fd, int flag, const char *format, ...)
{
	COLLECTED(int, format, w_vdprintf_chk(fd, flag, format, ap));
}
EXPORT(__dprintf_chk, w_dprintf_chk);
