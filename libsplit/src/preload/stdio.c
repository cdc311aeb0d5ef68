/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FILEs. The C library's stdio reads and writes through calls inside itself that no wrapper sees, so a file under a FILE is the
 * kernel's for good: made true when the FILE comes into being, and never staged again. So is a file that takes the number of a
 * standard stream, or of a descriptor under a FILE, by dup2 or by open.
 */
#include "preload.h"

#include <stdarg.h>
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
	if (fd <= 2 || fd >= MARKS)
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

/* "w" truncates the file inside the C library. */
static int before_truncation(const char *path)
{
	int fd = pl_take_over(path), err;

	if (fd < 0)
		return 0; /* not there yet, not a file, not to be written: fopen will say so */
	err = sfs_make_true(fd, true);
	pl_release(fd);
	return err;
}

WRAPPER FILE *w_fopen(const char *path, const char *mode)
{
	int err;

	if (likely(!sfs_active()))
		return REAL(fopen)(path, mode);
	err = *mode == 'w' ? before_truncation(path) : 0;
	if (err < 0) {
		pl_ret(err);
		return NULL;
	}
	return made(REAL(fopen)(path, mode), true, *mode != 'r');
}
EXPORT(fopen, w_fopen);
EXPORT(fopen64, w_fopen);

WRAPPER FILE *w_freopen(const char *path, const char *mode, FILE *f)
{
	int err;

	if (likely(!sfs_active()))
		return REAL(freopen)(path, mode, f);
	unmade(f);
	err = path && *mode == 'w' ? before_truncation(path) : 0;
	if (err < 0) {
		REAL(fclose)(f); /* as freopen does when it fails */
		pl_ret(err);
		return NULL;
	}
	return made(REAL(freopen)(path, mode, f), path != NULL, path && *mode != 'r');
}
EXPORT(freopen, w_freopen);
EXPORT(freopen64, w_freopen);

WRAPPER FILE *w_fdopen(int fd, const char *mode)
{
	int err = sfs_ours(fd) ? sfs_make_true(fd, true) : 0;

	if (err < 0) {
		pl_ret(err);
		return NULL;
	}
	return sfs_active() ? made(REAL(fdopen)(fd, mode), false, false) : REAL(fdopen)(fd, mode);
}
EXPORT(fdopen, w_fdopen);

WRAPPER FILE *w_tmpfile(void)
{
	return sfs_active() ? made(REAL(tmpfile)(), true, false) : REAL(tmpfile)();
}
EXPORT(tmpfile, w_tmpfile);
EXPORT(tmpfile64, w_tmpfile);

WRAPPER int w_fclose(FILE *f)
{
	if (unlikely(sfs_active()))
		unmade(f);
	return REAL(fclose)(f);
}
EXPORT(fclose, w_fclose);

WRAPPER int w_pclose(FILE *f)
{
	if (unlikely(sfs_active()))
		unmade(f);
	return REAL(pclose)(f);
}
EXPORT(pclose, w_pclose);

/* dprintf writes inside the C library, and keeps nothing. */
WRAPPER int w_vdprintf(int fd, const char *format, va_list ap)
{
	TRUE_THEN(fd, REAL(vdprintf)(fd, format, ap));
}
EXPORT(vdprintf, w_vdprintf);

WRAPPER int w_dprintf(int fd, const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = w_vdprintf(fd, format, ap);
	va_end(ap);
	return r;
}
EXPORT(dprintf, w_dprintf);

WRAPPER int w_vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	TRUE_THEN(fd, REAL_AS(int (*)(int, int, const char *, va_list), __vdprintf_chk)(fd, flag, format, ap));
}
EXPORT(__vdprintf_chk, w_vdprintf_chk);

WRAPPER int w_dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = w_vdprintf_chk(fd, flag, format, ap);
	va_end(ap);
	return r;
}
EXPORT(__dprintf_chk, w_dprintf_chk);
