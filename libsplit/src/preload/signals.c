/* SPDX-License-Identifier: Apache-2.0 */
/* The program's first signal handler is noticed: until then our locks need not block signals, which takes two system calls each. */
#include "preload.h"

#include <signal.h>

typedef void (*handler_fn)(int);
typedef handler_fn (*signal_fn)(int, handler_fn);

WRAPPER int w_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	if (act && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN)
		sfs_handler_installed();
	return REAL_AS(int (*)(int, const struct sigaction *, struct sigaction *), sigaction)(sig, act, old);
}
EXPORT(sigaction, w_sigaction);
EXPORT(__sigaction, w_sigaction);

static handler_fn noticed(signal_fn real, int sig, handler_fn handler)
{
	if (handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR)
		sfs_handler_installed();
	return real(sig, handler);
}

WRAPPER handler_fn w_signal(int sig, handler_fn handler)
{
	return noticed(REAL_AS(signal_fn, signal), sig, handler);
}
EXPORT(signal, w_signal);
EXPORT(bsd_signal, w_signal);
EXPORT(ssignal, w_signal);

WRAPPER handler_fn w_sysv_signal(int sig, handler_fn handler)
{
	return noticed(REAL_AS(signal_fn, __sysv_signal), sig, handler);
}
EXPORT(sysv_signal, w_sysv_signal);
EXPORT(__sysv_signal, w_sysv_signal);

WRAPPER handler_fn w_sigset(int sig, handler_fn handler)
{
	return noticed(REAL_AS(signal_fn, sigset), sig, handler);
}
EXPORT(sigset, w_sigset);
