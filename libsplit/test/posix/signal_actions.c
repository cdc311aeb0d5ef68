/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program sees of its signal handlers: how they were installed, what they are told, what is blocked while they run and after, and that each
 * signal that is sent arrives, also those that come in the middle of a call on a file.
 */
#define _GNU_SOURCE 1
#include "check.h"

#include <pthread.h>
#include <signal.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt, which old programs call */

enum { SENT = 3000, SIZE = 64 << 10 };

static int fd;
static char buf[SIZE];
static volatile int seen, sum, blocked_wrong;

static void plain(int sig)
{
	seen = sig;
}

static void told(int sig, siginfo_t *info, void *at)
{
	sigset_t now;

	CHECK(at && info->si_signo == sig && info->si_code == SI_QUEUE && info->si_pid == getpid());
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	if (!sigismember(&now, sig) || !sigismember(&now, SIGUSR1) || sigismember(&now, SIGUSR2))
		blocked_wrong++;
	sum += info->si_value.sival_int;
	seen++;
}

/* How a handler is remembered. */
static void check_handler(int sig, void *handler, int flags)
{
	struct sigaction old;

	CHECK(sigaction(sig, NULL, &old) == 0);
	CHECK((void *)old.sa_handler == handler);
	CHECK((old.sa_flags & (int)(SA_SIGINFO | SA_RESTART | SA_RESETHAND | SA_NODEFER | SA_ONSTACK)) == flags);
}

static void check_installed(void)
{
	struct sigaction act = {.sa_sigaction = told, .sa_flags = SA_SIGINFO | SA_ONSTACK}, old;

	CHECK(sigaction(SIGUSR1, &act, &old) == 0 && old.sa_handler == SIG_DFL);
	check_handler(SIGUSR1, (void *)told, SA_SIGINFO | SA_ONSTACK);
	CHECK(signal(SIGUSR1, plain) == (void (*)(int))(void *)told);
	check_handler(SIGUSR1, (void *)plain, SA_RESTART);
	CHECK(siginterrupt(SIGUSR1, 1) == 0);
	check_handler(SIGUSR1, (void *)plain, 0);
	CHECK(signal(SIGUSR1, plain) == plain);
	check_handler(SIGUSR1, (void *)plain, 0);
	CHECK(siginterrupt(SIGUSR1, 0) == 0);
	check_handler(SIGUSR1, (void *)plain, SA_RESTART);
	CHECK(signal(SIGUSR1, SIG_IGN) == plain && raise(SIGUSR1) == 0 && seen == 0);
	CHECK(sigaction(SIGUSR1, &act, &old) == 0 && old.sa_handler == SIG_IGN);
	CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, &old) == 0);
	CHECK(old.sa_sigaction == told && old.sa_flags & SA_SIGINFO);
	errno = 0;
	CHECK(sigaction(SIGKILL, &act, NULL) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(sigaction(65, &act, NULL) == -1 && errno == EINVAL && sigaction(0, &act, NULL) == -1);
	CHECK(signal(SIGSEGV, plain) == SIG_DFL && signal(SIGSEGV, SIG_DFL) == plain);
#ifdef __GLIBC__
	CHECK(sysv_signal(SIGUSR1, plain) == SIG_DFL);
	check_handler(SIGUSR1, (void *)plain, (int)(SA_RESETHAND | SA_NODEFER));
	CHECK(raise(SIGUSR1) == 0 && seen == SIGUSR1);
	CHECK(signal(SIGUSR1, SIG_DFL) == SIG_DFL);
#endif
	seen = 0;
}

static void *sender(void *arg)
{
	const pthread_t to = *(pthread_t *)arg;

	for (int i = 1; i <= SENT; i++) {
		while (pthread_sigqueue(to, SIGRTMIN, (union sigval){.sival_int = i}) != 0)
			usleep(100); /* as many are queued as may be */
		usleep(50);
	}
	return NULL;
}

/* Each is told what was sent with it, and blocks what sigaction says; afterwards everything is as it was. */
static void all_arrive(void)
{
	struct sigaction act = {.sa_sigaction = told, .sa_flags = SA_SIGINFO | SA_RESTART};
	const pthread_t self = pthread_self();
	sigset_t before, after;
	pthread_t t;

	sigaddset(&act.sa_mask, SIGUSR1);
	CHECK(sigaction(SIGRTMIN, &act, NULL) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
	CHECK(pthread_create(&t, NULL, sender, (void *)&self) == 0);
	while (seen < SENT)
		CHECK(pwrite(fd, buf, SIZE, 0) == SIZE && pread(fd, buf, SIZE, 0) == SIZE);
	CHECK(pthread_join(t, NULL) == 0 && sum == SENT * (SENT + 1) / 2 && blocked_wrong == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0 && memcmp(&before, &after, 8) == 0);
}

static void *kicker(void *arg)
{
	const pthread_t to = *(pthread_t *)arg;

	usleep(300);
	CHECK(pthread_kill(to, SIGUSR2) == 0);
	return NULL;
}

/* A handler for one time is called once, whenever its signal comes, and then forgotten. */
static void once_each(void)
{
	const pthread_t self = pthread_self();
	pthread_t t;

	for (int i = 0; i < 200; i++) {
		seen = 0;
		CHECK(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = plain, .sa_flags = (int)SA_RESETHAND}, NULL) == 0);
		CHECK(pthread_create(&t, NULL, kicker, (void *)&self) == 0);
		while (!seen)
			CHECK(pwrite(fd, buf, SIZE, 0) == SIZE);
		CHECK(pthread_join(t, NULL) == 0 && seen == SIGUSR2);
		CHECK(signal(SIGUSR2, SIG_DFL) == SIG_DFL);
	}
}

int main(void)
{
	alarm(100);
	CHECK((fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	check_installed();
	all_arrive();
	once_each();
	return 0;
}
