/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that come and go: fork in its forms, and exit. */
#include "preload.h"

#include <pty.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <utmp.h>

/* The child will share every open file description. */
static void before_fork(void)
{
	pl_share();
	sfs_fork_prepare();
}

/* The child is told apart by the result. */
static pid_t fork_with(pid_t (*fork_fn)(void))
{
	pid_t pid;

	before_fork();
	pid = fork_fn();
	if (pid == 0)
		sfs_fork_child();
	else
		sfs_fork_parent();
	return pid;
}

WRAPPER pid_t w_fork(void)
{
	return sfs_active() ? fork_with(REAL(fork)) : REAL(fork)();
}
EXPORT(fork, w_fork);
EXPORT(__fork, w_fork);

WRAPPER pid_t w__Fork(void)
{
	pid_t (*fn)(void) = REAL_AS(pid_t(*)(void), _Fork);

	return sfs_active() ? fork_with(fn) : fn();
}
EXPORT(_Fork, w__Fork);

/*
 * A vfork child runs in its parent's memory with a descriptor table of its own: its close and dup2 would change our table for
 * the parent. So with volumes vfork is fork. Without, the real vfork must return to the caller's own frame, twice: hence a
 * jump, and no frame here.
 */
__attribute__((used)) static void *vfork_target(void)
{
	return sfs_active() ? (void *)w_fork : pl_real(PL_vfork);
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

static void leaving(void)
{
	if (sfs_active())
		sfs_exit();
}

WRAPPER void w__exit(int status)
{
	leaving();
	REAL(_exit)(status);
}
EXPORT(_exit, w__exit);
EXPORT(_Exit, w__exit);

struct clone_start {
	int (*fn)(void *);
	void *arg;
};

/* The child has a copy of the parent's memory, and with it of the structure. */
static int clone_child(void *arg)
{
	struct clone_start *s = arg;

	sfs_fork_child();
	/* The C library would end this thread alone, and not our own. */
	w__exit(s->fn(s->arg));
	return 0;
}

/* clone without CLONE_VM is a fork; with it, it is a thread, or a spawn that runs no code of ours. */
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
	if (!sfs_active() || flags & CLONE_VM || !fn || !stack)
		return real(fn, stack, flags, arg, parent_tid, tls, child_tid);
	before_fork();
	pid = real(clone_child, stack, flags, &start, parent_tid, tls, child_tid);
	sfs_fork_parent();
	return pid;
}
EXPORT(clone, w_clone);
EXPORT(__clone, w_clone);

WRAPPER int w_forkpty(int *master, char *name, const struct termios *tio, const struct winsize *size)
{
	int pid;

	if (!sfs_active())
		return REAL(forkpty)(master, name, tio, size);
	before_fork();
	pid = REAL(forkpty)(master, name, tio, size);
	if (pid == 0) {
		sfs_fork_child();
		for (int fd = 0; fd <= 2; fd++)
			sfs_replaced(fd); /* the terminal's */
	} else {
		sfs_fork_parent();
	}
	return pid;
}
EXPORT(forkpty, w_forkpty);

/* The C library makes a terminal of 0, 1 and 2. */
WRAPPER int w_login_tty(int fd)
{
	for (int i = 0; i <= 2 && sfs_active(); i++)
		sfs_forget(i);
	return REAL(login_tty)(fd);
}
EXPORT(login_tty, w_login_tty);

/* The parent ends inside the C library, the child returns; 0, 1 and 2 become /dev/null unless noclose. */
WRAPPER int w_daemon(int nochdir, int noclose)
{
	int pid, r;

	if (!sfs_active())
		return REAL(daemon)(nochdir, noclose);
	sfs_exec_prepare();
	for (int fd = 0; fd <= 2 && !noclose; fd++)
		sfs_forget(fd);
	pid = sys_getpid();
	before_fork();
	r = REAL(daemon)(nochdir, noclose);
	if (sys_getpid() != pid)
		sfs_fork_child();
	else
		sfs_fork_parent();
	return r;
}
EXPORT(daemon, w_daemon);

/* What the program's own exit handlers write is caught by the destructor. */
WRAPPER void w_exit(int status)
{
	leaving();
	REAL(exit)(status);
}
EXPORT(exit, w_exit);

WRAPPER void w_quick_exit(int status)
{
	leaving();
	REAL(quick_exit)(status);
}
EXPORT(quick_exit, w_quick_exit);

WRAPPER void w_abort(void)
{
	leaving();
	REAL(abort)();
}
EXPORT(abort, w_abort);
