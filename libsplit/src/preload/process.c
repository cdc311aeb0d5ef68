/* SPDX-License-Identifier: Apache-2.0 */
/* The life of processes and threads: fork in its forms, new programs, exit, cancellation. */
#include "preload.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Standard output becomes the kernel's altogether: a shell's children write to it at the same time as the shell, and
 * may lack the library.
 */
void pl_share(void)
{
	if (sfs_ours(1))
		pl_hand_over(1); /* an error is the next write's */
	sfs_write_through_all();
}

/* The child will share every open file description. */
static void before_fork(void)
{
	pl_share();
	sfs_fork_prepare();
}

static long after_fork(long pid)
{
	if (pid == 0)
		sfs_fork_child();
	else
		sfs_fork_parent();
	return pid;
}

/* By number vfork is a fork as well. */
long do_fork(const struct request *q)
{
	before_fork();
	return after_fork(q->named ? pl_make(q) : sys_call5(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

/* struct clone_args of clone3(2) begins with its flags. */
static bool flags_of(const struct request *q, uint64_t *flags)
{
	const uint64_t *args = (const uint64_t *)q->a[0];

	if (q->call == PL_clone3 && !sys_readable_all(args, sizeof(*args)))
		return false;
	*flags = q->call == PL_clone3 ? *args : (uint64_t)q->a[0];
	return true;
}

/* By number. Without CLONE_VM it is a fork. With it, it is a thread, or a spawn that runs no code of ours. */
long do_clone(const struct request *q)
{
	uint64_t flags;

	if (!flags_of(q, &flags) || flags & CLONE_VM || (q->call == PL_clone && q->a[1]))
		return pl_make(q);
	before_fork();
	return after_fork(pl_make(q));
}

struct clone_start {
	int (*fn)(void *);
	void *arg;
};

/* The child has a copy of the parent's memory, with the structure in it. */
static int clone_child(void *arg)
{
	struct clone_start *s = arg;

	sfs_fork_child();
	/* The C library would end this thread alone, and the service thread would go on. */
	pl_call(s->fn(s->arg), 0, 0, 0, 0, 0, PL__exit);
	return 0;
}

WRAPPER int w_clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	struct clone_start start = {fn, arg};
	int (*real)(int (*)(void *), void *, int, void *, ...) = REAL(clone);
	void *parent_tid, *tls, *child_tid;
	va_list ap;
	int pid;

	va_start(ap, arg);
	parent_tid = va_arg(ap, void *);
	tls = va_arg(ap, void *);
	child_tid = va_arg(ap, void *);
	va_end(ap);
	if (pl_idle || flags & CLONE_VM || !fn || !stack)
		return real(fn, stack, flags, arg, parent_tid, tls, child_tid);
	before_fork();
	pid = real(clone_child, stack, flags, &start, parent_tid, tls, child_tid);
	sfs_fork_parent();
	return pid;
}
EXPORT(clone, w_clone);
EXPORT(__clone, w_clone);

static long fork_instead(void)
{
	return pl_call(0, 0, 0, 0, 0, 0, PL_fork);
}

/*
 * The child of vfork runs in its parent's memory with a table of descriptors of its own. Its close and dup2 would
 * change what the library knows of the parent's. So with volumes vfork is fork. Without volumes the real vfork must
 * return twice to the caller's own frame: hence a jump, and no frame here.
 */
__attribute__((used)) static void *vfork_target(void)
{
	return pl_idle ? pl_real(PL_vfork) : (void *)fork_instead;
}

#if defined(__x86_64__)
__asm__(".text\n\t"
	".type w_vfork, @function\n"
	"w_vfork:\n\t"
	".cfi_startproc\n\t"
	"endbr64\n\t"
	"sub $8, %rsp\n\t"
	".cfi_adjust_cfa_offset 8\n\t"
	"call vfork_target\n\t"
	"add $8, %rsp\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	"jmp *%rax\n\t"
	".cfi_endproc\n\t"
	".size w_vfork, . - w_vfork");
#else
__asm__(".text\n\t"
	".type w_vfork, %function\n"
	"w_vfork:\n\t"
	".cfi_startproc\n\t"
	"hint #34\n\t" /* bti c */
	"stp x29, x30, [sp, #-16]!\n\t"
	".cfi_adjust_cfa_offset 16\n\t"
	".cfi_offset x29, -16\n\t"
	".cfi_offset x30, -8\n\t"
	"bl vfork_target\n\t"
	"ldp x29, x30, [sp], #16\n\t"
	".cfi_adjust_cfa_offset -16\n\t"
	".cfi_restore x29\n\t"
	".cfi_restore x30\n\t"
	"mov x16, x0\n\t"
	"br x16\n\t"
	".cfi_endproc\n\t"
	".size w_vfork, . - w_vfork");
#endif
EXPORT(vfork, w_vfork);
EXPORT(__vfork, w_vfork);

long do_forkpty(const struct request *q)
{
	long pid;

	before_fork();
	pid = after_fork(pl_make(q));
	for (int fd = 0; fd <= 2 && pid == 0; fd++)
		sfs_replaced(fd); /* the terminal's */
	return pid;
}

/* The C library makes 0, 1 and 2 lead to a terminal. */
long do_login_tty(const struct request *q)
{
	for (int i = 0; i <= 2; i++)
		sfs_forget(i);
	return pl_make(q);
}

/*
 * The parent ends inside the C library, the child returns. Unless the second argument is set 0, 1 and 2 are replaced.
 */
long do_daemon(const struct request *q)
{
	const int pid = sys_getpid();
	long r;

	sfs_exec_prepare();
	for (int fd = 0; fd <= 2 && !(int)q->a[1]; fd++)
		sfs_forget(fd);
	before_fork();
	r = pl_make(q);
	after_fork(sys_getpid() == pid);
	return r;
}

/* Is there no such program? Shells try one directory after the other; the C library does that behind our back. */
static bool in_vain(const struct request *q)
{
	return (q->call == PL_execve || q->call == PL_execv) &&
	       sys_call3(SYS_faccessat, AT_FDCWD, q->a[0], X_OK) == -ENOENT;
}

/*
 * A new program in this process or in a new one may lack the library, so everything is true before it starts. The child
 * of posix_spawn, system and popen runs inside the C library, in the parent's memory, and calls nothing of ours.
 */
long do_exec(const struct request *q)
{
	const bool spawn = q->call == PL_posix_spawn || q->call == PL_posix_spawnp;
	const bool same = !spawn && q->call != PL_system && q->call != PL_popen;
	const bool actions = spawn && q->a[2] != 0;
	long r;

	if (in_vain(q))
		return pl_make(q);
	pl_share();
	sfs_exec_prepare();
	sfs_exec_announce(actions);
	if (same)
		sfs_exec_keep_locks(true);
	r = pl_make(q);
	if (same)
		sfs_exec_keep_locks(false);
	else
		sfs_spawn_announce(actions);
	return r;
}

/* The number of arguments in ap before the terminating NULL. */
static size_t count_args(va_list ap)
{
	size_t n = 0;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/* The list of arguments becomes a vector on the stack, as in the C library: nothing may be allocated before exec. */
#define LIST_TO_VECTOR(arg, argv)                                                                                      \
	va_list ap_;                                                                                                   \
	size_t n_ = 0;                                                                                                 \
	if (arg) {                                                                                                     \
		va_start(ap_, arg);                                                                                    \
		n_ = 1 + count_args(ap_);                                                                              \
		va_end(ap_);                                                                                           \
	}                                                                                                              \
	char *argv[n_ + 1];                                                                                            \
	argv[0] = (char *)arg;                                                                                         \
	va_start(ap_, arg);                                                                                            \
	for (size_t i_ = 1; i_ <= n_; i_++)                                                                            \
	argv[i_] = va_arg(ap_, char *)

WRAPPER int w_execl(const char *path, const char *arg, ...)
{
	LIST_TO_VECTOR(arg, argv);
	va_end(ap_);
	return (int)pl_call((long)path, (long)argv, 0, 0, 0, 0, PL_execv);
}
EXPORT(execl, w_execl);

WRAPPER int w_execlp(const char *file, const char *arg, ...)
{
	LIST_TO_VECTOR(arg, argv);
	va_end(ap_);
	return (int)pl_call((long)file, (long)argv, 0, 0, 0, 0, PL_execvp);
}
EXPORT(execlp, w_execlp);

/* The environment follows the terminating NULL. */
WRAPPER int w_execle(const char *path, const char *arg, ...)
{
	LIST_TO_VECTOR(arg, argv);
	char **envp = va_arg(ap_, char **);

	va_end(ap_);
	return (int)pl_call((long)path, (long)argv, (long)envp, 0, 0, 0, PL_execve);
}
EXPORT(execle, w_execle);

/* The destructor comes after the program's exit handlers, for what they write. */
long do_exit(const struct request *q)
{
	sfs_exit();
	return pl_make(q);
}

/* By number, one thread ends. After the last of the program's the service thread would go on alone. */
long do_exit_thread(const struct request *q)
{
	if (!sfs_one_thread())
		return pl_make(q);
	sfs_exit();
	return sys_call1(SYS_exit_group, q->a[0]);
}

/* By number: the kernel calls the program's handler itself, and its signals are not put off. */
long do_handler(const struct request *q)
{
	sfs_handler_installed();
	return pl_make(q);
}

int pl_cancel_used;

void pl_test_cancel(void)
{
	REAL(pthread_testcancel)();
}

/* Calls that are served look for it from now on. The C library has a handler for threads that are cancelled at once. */
long do_cancel(const struct request *q)
{
	__atomic_store_n(&pl_cancel_used, 1, __ATOMIC_RELAXED);
	sfs_handler_installed();
	return pl_make(q);
}
