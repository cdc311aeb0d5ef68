/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal handlers, where a volume is served. The kernel is given one of ours, which calls the program's: at once, or at the end of the call on
 * a file that the signal has come in the middle of (process/deferred.c). Not so for errors of the thread itself, which can't wait; SIGSEGV and
 * SIGBUS are those of a bad buffer first (preload/faults.c).
 *
 * The program's first handler is noticed, too: until then our locks need not block signals, which takes two system calls each.
 */
#include "preload.h"

#include <signal.h>
#include <string.h>

#include "base/lock.h"
#include "base/sys.h"

typedef void (*handler_fn)(int);
typedef void (*info_fn)(int, siginfo_t *, void *);
typedef handler_fn (*signal_fn)(int, handler_fn);
typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);

#define LAST	 64
#define SIG_HELD ((handler_fn)2) /* SIG_HOLD, which not all headers have */

/*
 * The program's handlers. Each is there before the kernel has ours, and stays when that is gone: the child of a vfork, which has dispositions of
 * its own, shares this table.
 */
static void *handlers[LAST + 1];
/* What the kernel has, or had: it forgets those with SA_RESETHAND when it calls them. */
static struct sigaction installed[LAST + 1];
static uint64_t handled; /* signals that ever had one */

static sigaction_fn real_sigaction(void)
{
	return REAL_AS(sigaction_fn, sigaction);
}

static void on_signal(int sig, siginfo_t *info, void *at)
{
	const info_fn handler = (info_fn)__atomic_load_n(&handlers[sig], __ATOMIC_ACQUIRE);

	if (!sfs_defer(sig, info, at, __atomic_load_n(&handled, __ATOMIC_RELAXED) | SFS_SIGNAL(sig)))
		handler(sig, info, at);
	else if (installed[sig].sa_flags & (int)SA_RESETHAND)
		real_sigaction()(sig, &installed[sig], NULL);
}

/* The same for a handler that takes the number only: so it is told apart when the program asks for its handler. */
static void on_plain_signal(int sig, siginfo_t *info, void *at)
{
	on_signal(sig, info, at);
}

/* What the kernel does to call a handler, for sfs_call_handler. */
static bool call_handler(int sig, siginfo_t *info, ucontext_t *at, bool must)
{
	const struct sigaction act = installed[sig];
	const uint64_t all = ~0ull;
	uint64_t mask, during;

	if (act.sa_flags & SA_ONSTACK && !must)
		return false;
	if (act.sa_flags & (int)SA_RESETHAND)
		real_sigaction()(sig, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	memcpy(&mask, &at->uc_sigmask, sizeof(mask));
	memcpy(&during, &act.sa_mask, sizeof(during));
	during |= mask | (act.sa_flags & SA_NODEFER ? 0 : SFS_SIGNAL(sig));
	sys_sigmask(SIG_SETMASK, &during, NULL);
	((info_fn)__atomic_load_n(&handlers[sig], __ATOMIC_ACQUIRE))(sig, info, at);
	sys_sigmask(SIG_SETMASK, &all, NULL);
	return true;
}

static bool is_ours(const void *handler)
{
	return handler == (void *)on_signal || handler == (void *)on_plain_signal;
}

/* A function of the program's, and none of the values that stand for something else. */
static bool is_handler(const void *handler)
{
	return handler != (void *)SIG_DFL && handler != (void *)SIG_IGN && handler != (void *)SIG_ERR &&
	       handler != (void *)SIG_HELD;
}

static bool takes_ours(int sig, const void *handler)
{
	return is_handler(handler) && sfs_active() && sig > 0 && sig <= LAST && !(SFS_SIGNAL(sig) & SFS_FAULTS) &&
	       !is_ours(handler);
}

/* What the kernel had, as the program knows it. before: its handler then. */
static void make_theirs(struct sigaction *act, void *before)
{
	if (act->sa_sigaction == on_plain_signal)
		act->sa_flags &= ~SA_SIGINFO;
	else if (act->sa_sigaction != on_signal)
		return;
	act->sa_sigaction = (info_fn)before;
}

WRAPPER int w_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction ours;
	void *before;
	int r;

	if (act && is_handler((void *)act->sa_handler))
		sfs_handler_installed();
	if (pl_fault_signal(sig))
		return pl_fault_action(sig, act, old);
	if (!sfs_active() || sig <= 0 || sig > LAST)
		return real_sigaction()(sig, act, old);
	if (!act || !takes_ours(sig, (void *)act->sa_handler)) {
		r = real_sigaction()(sig, act, old);
		if (r == 0 && old)
			make_theirs(old, __atomic_load_n(&handlers[sig], __ATOMIC_ACQUIRE));
		return r;
	}
	ours = *act;
	ours.sa_sigaction = act->sa_flags & SA_SIGINFO ? on_signal : on_plain_signal;
	ours.sa_flags |= SA_SIGINFO;
	before = __atomic_exchange_n(&handlers[sig], (void *)act->sa_handler, __ATOMIC_ACQ_REL);
	installed[sig] = ours;
	r = real_sigaction()(sig, &ours, old);
	if (r < 0) {
		__atomic_store_n(&handlers[sig], before, __ATOMIC_RELEASE);
		return r;
	}
	__atomic_fetch_or(&handled, SFS_SIGNAL(sig), __ATOMIC_RELAXED);
	if (old)
		make_theirs(old, before);
	return r;
}
EXPORT(sigaction, w_sigaction);
EXPORT(__sigaction, w_sigaction);

/* With what is no handler, where nothing is served, or for an error of the thread. */
static handler_fn passed_on(signal_fn real, int sig, handler_fn handler)
{
	handler_fn r;

	if (is_handler((void *)handler))
		sfs_handler_installed();
	r = real(sig, handler);
	if (is_ours((void *)r))
		r = (handler_fn)__atomic_load_n(&handlers[sig], __ATOMIC_ACQUIRE);
	return r;
}

/* signal(3) and its like are this with other flags. */
static handler_fn install(int sig, handler_fn handler, int flags, uint64_t mask)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;

	memcpy(&act.sa_mask, &mask, sizeof(mask));
	return w_sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

/* Where this is signal(3), which knows nothing of siginterrupt(3). */
static bool in_musl(void)
{
	return pl_real(PL___sysv_signal) == pl_real(PL_signal);
}

static uint64_t interrupts; /* signals that end a system call also with a handler that signal(3) installs */

WRAPPER int w_siginterrupt(int sig, int flag)
{
	const int r = REAL_AS(int (*)(int, int), siginterrupt)(sig, flag);

	if (r == 0 && flag)
		__atomic_fetch_or(&interrupts, SFS_SIGNAL(sig), __ATOMIC_RELAXED);
	else if (r == 0)
		__atomic_fetch_and(&interrupts, ~SFS_SIGNAL(sig), __ATOMIC_RELAXED);
	return r;
}
EXPORT(siginterrupt, w_siginterrupt);

WRAPPER handler_fn w_signal(int sig, handler_fn handler)
{
	bool ends;

	if (!takes_ours(sig, (void *)handler) && !pl_fault_signal(sig))
		return passed_on(REAL_AS(signal_fn, signal), sig, handler);
	ends = !in_musl() && __atomic_load_n(&interrupts, __ATOMIC_RELAXED) & SFS_SIGNAL(sig);
	return install(sig, handler, ends ? 0 : SA_RESTART, SFS_SIGNAL(sig));
}
EXPORT(signal, w_signal);
EXPORT(bsd_signal, w_signal);
EXPORT(ssignal, w_signal);

WRAPPER handler_fn w_sysv_signal(int sig, handler_fn handler)
{
	if (in_musl())
		return w_signal(sig, handler);
	if (!takes_ours(sig, (void *)handler) && !pl_fault_signal(sig))
		return passed_on(REAL_AS(signal_fn, __sysv_signal), sig, handler);
	return install(sig, handler, (int)(SA_RESETHAND | SA_NODEFER), 0);
}
EXPORT(sysv_signal, w_sysv_signal);
EXPORT(__sysv_signal, w_sysv_signal);

WRAPPER handler_fn w_sigset(int sig, handler_fn handler)
{
	const uint64_t mine = SFS_SIGNAL(sig);
	uint64_t mask = 0;
	handler_fn r;

	if (!takes_ours(sig, (void *)handler) && !(pl_fault_signal(sig) && handler != SIG_HELD))
		return passed_on(REAL_AS(signal_fn, sigset), sig, handler);
	r = install(sig, handler, 0, 0);
	if (r == SIG_ERR)
		return r;
	sys_sigmask(SIG_UNBLOCK, &mine, &mask);
	return mask & mine ? SIG_HELD : r;
}
EXPORT(sigset, w_sigset);

void pl_signals_start(void)
{
	struct sigaction act;

	sfs_call_handler = call_handler;
	if (sfs_active())
		pl_faults_start();
	/* A handler that is there already has been installed by a library's constructor, and not by a function that is ours. */
	if (pl_elf_few())
		return;
	for (int sig = 1; sig <= LAST; sig++)
		if (real_sigaction()(sig, NULL, &act) == 0 && takes_ours(sig, (void *)act.sa_handler))
			w_sigaction(sig, &act, NULL);
}
