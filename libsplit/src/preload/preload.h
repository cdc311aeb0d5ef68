/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the interception is made of. A call comes by name, through a wrapper, or by number, through syscall(2); both
 * become a struct request, and the function of its row's policy (calls.def) does all that is to be done for files of a
 * volume.
 *
 * Rules: errno is set only on failure; a descriptor that is not ours goes to the real function; nothing here allocates,
 * locks or prints. A call that we do not serve finds the kernel's view made true first (sfs_make_true), and is followed
 * by sfs_changed.
 */
#ifndef SFS_PRELOAD_H
#define SFS_PRELOAD_H

#ifndef _GNU_SOURCE
#error "compile with -D_GNU_SOURCE"
#endif

#include "../base/sys.h"
#include "calls/calls.h"
#include "fds/own.h"
#include "numbers.h"
#include "real.h"

#include <errno.h>

#pragma GCC visibility push(hidden)

/*
 * Exported names are assembler aliases of static functions: no clash with the types in headers (struct stat64, variadic
 * prototypes), and one function under all its names. They are the only symbols that the object exports.
 */
#define WRAPPER		   static __attribute__((used, noinline, noclone))
#define EXPORT(name, impl) __asm__(".globl " #name "\n\t.type " #name ", @function\n\t.set " #name ", " #impl)

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* --- a call */

struct request {
	enum pl_call call;
	bool named;    /* by name, not by number */
	const long *a; /* six arguments */
};

/* What calls.def says of a call. Places of arguments are counted from 1 here; 0: it has none. */
struct pl_row {
	short number;
	unsigned char result, fd, path, flags, fd2, path2;
	bool nofollow;
};
enum pl_result { PL_I, PL_L, PL_P, PL_E, PL_R, PL_V };
extern const struct pl_row pl_rows[PL_COUNT];

/* No volume is served: every call is passed on. In a page that the loader has written to anyway. */
extern bool pl_idle;

/*
 * Make the call: the real function, or by number the system call. Returns its result; on failure a negative errno
 * value, or PL_FAILED when errno is set already. Of a pointer or size, 0 is failure.
 */
long pl_make(const struct request *q);
/* The same of a call that makes descriptors: where no number is left it is made again when we have given one back. */
long pl_make_new(const struct request *q);
/* The C library may open a file, for us. */
long pl_make_open(const struct request *q);

static inline bool pl_failed(const struct request *q, long r)
{
	return pl_rows[q->call].result == PL_P ? r == 0 || (unsigned long)r >= -4095ul : r < 0;
}

/* Its descriptor, else AT_FDCWD; its path, else NULL; its at_flags; and the argument behind those. */
static inline int pl_fd(const struct request *q)
{
	const unsigned char at = pl_rows[q->call].fd;

	return at ? (int)q->a[at - 1] : AT_FDCWD;
}
static inline const char *pl_path(const struct request *q)
{
	const unsigned char at = pl_rows[q->call].path;

	return at ? (const char *)q->a[at - 1] : NULL;
}
/* A program that looks which numbers are in use, to find what it has leaked, finds its own: is this one of the library itself? */
static inline bool pl_hidden(const struct request *q)
{
	return !pl_path(q) && sfs_fd_is_private(pl_fd(q));
}
static inline int pl_at_flags(const struct request *q)
{
	const struct pl_row *row = &pl_rows[q->call];

	return (row->flags ? (int)q->a[row->flags - 1] : 0) | (row->nofollow ? AT_SYMLINK_NOFOLLOW : 0);
}
static inline long pl_next(const struct request *q)
{
	const struct pl_row *row = &pl_rows[q->call];
	const unsigned char last = row->path ? row->path : row->fd;

	return q->a[row->flags == last + 1 ? row->flags : last];
}

/* The kernel's convention for results turned into the C library's. */
static inline long pl_ret(long r)
{
	extern int *__errno_location(void) __attribute__((weak, visibility("default")));

	if (likely((unsigned long)r < -4095ul))
		return r == PL_FAILED ? -1 : r;
	if (__errno_location)
		*__errno_location() = (int)-r;
	return -1;
}

/*
 * The policies: do_<policy>(q) is the call with all that comes before and after it, and returns what pl_make() would.
 */
typedef long pl_policy(const struct request *q);
pl_policy do_serve, do_read_chk, do_posix_fallocate;					 /* rw.c */
pl_policy do_open, do_open_2, do_openat2, do_handle, do_created, do_truncate;		 /* open.c */
pl_policy do_close, do_close_range, do_closefrom, do_unshare, do_dup, do_dup2, do_fcntl; /* descriptors.c */
pl_policy do_foreign, do_foreign_two, do_new;
pl_policy do_entry, do_attribute, do_mode, do_setxattr, do_rename, do_link, do_unlink, do_times, do_stat; /* names.c */
pl_policy do_true_then, do_look_then, do_lock_then, do_all_true, do_sync, do_ioctl, do_mmap, do_limits;	  /* kernel.c */
pl_policy do_aio, do_lio_listio, do_io_submit, do_ring;
pl_policy do_sendmsg, do_recvmsg;								    /* msg.c */
pl_policy do_fork, do_clone, do_forkpty, do_daemon, do_login_tty, do_exec, do_exit, do_exit_thread; /* process.c */
pl_policy do_handler, do_cancel;
pl_policy do_fopen, do_fdopen, do_fclose, do_freopen, do_tmpfile, do_setmntent, do_unmade; /* stdio.c */
pl_policy do_print;									   /* print.c */
pl_policy do_out, do_wide, do_fwide;							   /* stdout.c */

/* A call by name, for wrappers written by hand. */
long pl_call(long a, long b, long c, long d, long e, long f, enum pl_call call);

/* --- helpers */

/*
 * Calls that POSIX makes cancellation points stay that when we serve them. Nothing is checked until the program has
 * called pthread_cancel once.
 */
extern int pl_cancel_used;
void pl_test_cancel(void) __attribute__((cold));

/* faults.c: SIGSEGV and SIGBUS, whose handler is ours. */
struct sigaction;
void pl_faults_start(void) __attribute__((visibility("hidden"), cold));
/*
 * Is the signal one of them, and the handler there? Then the program's action is kept by pl_fault_action(), which is
 * sigaction(2) for it.
 */
bool pl_fault_signal(int sig) __attribute__((visibility("hidden")));
int pl_fault_action(int sig, const struct sigaction *act, struct sigaction *old) __attribute__((visibility("hidden")));

static inline void pl_cancel_point(void)
{
	if (unlikely(__atomic_load_n(&pl_cancel_used, __ATOMIC_RELAXED)))
		pl_test_cancel();
}

/* signals.c: of handlers that are there already. */
void pl_signals_start(void) __attribute__((cold));

/* Addresses that no program has memory at: NULL and its neighbours, and the kernel's half. Others fault (faults.c). */
static inline bool pl_bad_buffer(const void *buf, size_t n)
{
	return sfs_user_never(buf, n);
}

/*
 * Descriptors that the C library writes to without our seeing it: the standard streams' 0, 1 and 2, and whatever is
 * under a FILE. A file that gets such a number is the kernel's from then on (stdio.c).
 */
void pl_stdio_mark(int fd);
bool pl_stdio_marked(int fd);

/*
 * fd, if it is ours, is true for a call that changes none of its bytes; the file of fd, ours, is the kernel's from now
 * on, written to without our seeing it.
 */
static inline int pl_true(int fd)
{
	const int err = sfs_ours(fd) ? sfs_true_to_look(fd) : 0;

	return err < 0 ? err : 0;
}
static inline void pl_changed(int fd)
{
	if (sfs_ours(fd))
		sfs_changed(fd);
}
static inline int pl_hand_over(int fd)
{
	const int err = sfs_write_through(fd);

	return err < 0 ? err : sfs_make_true(fd, true);
}

/*
 * The file at path made true; without a path the open file fd. Only what stands for lost data stops the call that
 * follows; a path that does not exist is for the real call to report.
 */
int pl_path_true(int fd, const char *path, int at_flags);
/*
 * Before the C library truncates the file at path: it is true, and the kernel's from then on. No descriptor of a file
 * that is open here is closed, which would drop the process's locks on it.
 */
int pl_give_up(const char *path);
/* Close fd, which has just come into being. */
void pl_release(int fd);
/* Another process is about to share all open file descriptions: what it writes is the kernel's to order. */
void pl_share(void);

/*
 * fd has just come into being: known to the core already; from somewhere else; or by a call that may have created or
 * truncated the file, which is durable then. Returns fd, a negative value that was given, or an error: then the
 * descriptor is closed, being of no use.
 */
long pl_new_fd(long fd);
long pl_adopt(long fd);
long pl_adopt_created(long fd);

#pragma GCC visibility pop

#endif
