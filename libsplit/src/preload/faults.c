/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGSEGV and SIGBUS, where a volume is served. The kernel has a handler of ours: a fault in a copy to or from memory of the program makes
 * that call EFAULT or EIO (base/fault.h), as it is with the kernel's own copies; one that waits for space is made again. Every other one is the program's, whose action is kept here
 * and answered for: its handler is called as the kernel would call it.
 */
#include "preload.h"

#include <signal.h>
#include <string.h>

#include "base/fault.h"
#include "base/sys.h"

typedef void (*info_fn)(int, siginfo_t *, void *);
typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);

static struct theirs {
	struct sigaction act; /* as the program knows it */
} theirs[2];		      /* SIGSEGV, SIGBUS */
static bool started;

static sigaction_fn real_sigaction(void)
{
	return REAL_AS(sigaction_fn, sigaction);
}

static struct theirs *of(int sig)
{
	return &theirs[sig == SIGBUS];
}

/*
 * The default action, or to ignore what can't be ignored: what the kernel does without a handler. A fault comes again at once, a signal
 * that was sent is sent again.
 */
static void by_default(int sig, siginfo_t *info)
{
	const struct sigaction none = {.sa_handler = SIG_DFL};

	real_sigaction()(sig, &none, NULL);
	if (info->si_code <= 0)
		sys_call4(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_call0(SYS_gettid), sig, (long)info);
}

static void on_fault(int sig, siginfo_t *info, void *at)
{
	struct theirs *t = of(sig);
	const struct sigaction act = t->act;

	if (sig == SIGBUS && info->si_code == BUS_ADRERR && sfs_store_again((uintptr_t)info->si_addr))
		return;
	if (sfs_fault(sig, info, at))
		return;
	if (act.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) {
		by_default(sig, info);
		return;
	}
	if (act.sa_flags & (int)SA_RESETHAND)
		t->act.sa_handler = SIG_DFL;
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(sig, info, at);
	else
		((info_fn)(void *)act.sa_handler)(sig, info, at);
}

/* Ours, with everything of the program's but its handler. */
static int install(int sig)
{
	struct sigaction ours = of(sig)->act;

	ours.sa_sigaction = on_fault;
	ours.sa_flags = (ours.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
	return real_sigaction()(sig, &ours, NULL);
}

bool pl_fault_signal(int sig)
{
	return started && (sig == SIGSEGV || sig == SIGBUS);
}

int pl_fault_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before = of(sig)->act;
	int r = 0;

	if (act) {
		of(sig)->act = *act;
		r = install(sig);
		if (r < 0)
			of(sig)->act = before;
	}
	if (r == 0 && old)
		*old = before;
	return r;
}

void pl_faults_start(void)
{
	for (int i = 0; i < 2; i++) {
		const int sig = i ? SIGBUS : SIGSEGV;

		if (real_sigaction()(sig, NULL, &theirs[i].act) == 0)
			install(sig);
	}
	started = true;
}
