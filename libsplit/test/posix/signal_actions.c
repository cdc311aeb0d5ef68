/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program sees of its signal handlers: how they were installed, what they are told, what is blocked while they run and after, and that each
 * signal that is sent arrives, also those that come in the middle of a call on a file.
 */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt, which old programs call */

enum { SENT = 3000, SIZE = 64 << 10 };

static int fd;
static char buf[SIZE];
static volatile int seen, sum, disordered, blocked_wrong;

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
	if (info->si_value.sival_int != ++seen)
		disordered++;
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

static bool in_bursts;

static void *sender(void *arg)
{
	const pthread_t to = *(pthread_t *)arg;

	for (int i = 1; i <= SENT; i++) {
		while (pthread_sigqueue(to, SIGRTMIN, (union sigval){.sival_int = i}) != 0)
			; /* as many are queued as may be */
		if (!in_bursts || i % 100 == 0)
			usleep(50);
	}
	return NULL;
}

/*
 * Each comes once, in the order of sending, also where the queue is full; is told what was sent with it, and blocks what sigaction says. Afterwards
 * everything is as it was.
 */
static void all_arrive(void)
{
	struct sigaction act = {.sa_sigaction = told, .sa_flags = SA_SIGINFO | SA_RESTART};
	const pthread_t self = pthread_self();
	sigset_t before, after;
	pthread_t t;

	seen = sum = 0;
	sigaddset(&act.sa_mask, SIGUSR1);
	CHECK(sigaction(SIGRTMIN, &act, NULL) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
	CHECK(pthread_create(&t, NULL, sender, (void *)&self) == 0);
	while (seen < SENT)
		CHECK(pwrite(fd, buf, SIZE, 0) == SIZE && pread(fd, buf, SIZE, 0) == SIZE);
	CHECK(pthread_join(t, NULL) == 0 && sum == SENT * (SENT + 1) / 2);
	CHECK(disordered == 0 && blocked_wrong == 0);
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

static sigjmp_buf top;

static void out(int sig)
{
	(void)sig;
	siglongjmp(top, 1);
}

/* A bad buffer is EFAULT or SIGSEGV; who jumps out of that, which leaves the file locked, still gets signals in calls on others. */
static void after_a_bad_buffer(void)
{
	const pthread_t self = pthread_self();
	void *bad = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0644);
	sigset_t now;
	pthread_t t;

	CHECK(bad != MAP_FAILED && other >= 0 && sigaction(SIGSEGV, &(struct sigaction){.sa_handler = out}, NULL) == 0);
	for (int i = 0; i < 300; i++) /* until the lock knows its thread */
		CHECK(write(other, buf, 100) == 100);
	if (sigsetjmp(top, 1) == 0)
		CHECK(pread(other, bad, SIZE, 0) == -1 && errno == EFAULT);
	for (int i = 0; i < 100; i++) {
		seen = 0;
		CHECK(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = plain}, NULL) == 0);
		CHECK(pthread_create(&t, NULL, kicker, (void *)&self) == 0);
		while (!seen)
			CHECK(pread(fd, buf, i % 2 ? 100 : SIZE, 0) > 0);
		CHECK(pthread_join(t, NULL) == 0);
		CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && !sigismember(&now, SIGUSR2));
	}
}

int main(void)
{
	const struct rlimit few = {20, 20};

	alarm(100);
	CHECK((fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	check_installed();
	all_arrive();
	in_bursts = true;
	all_arrive();
	CHECK(setrlimit(RLIMIT_SIGPENDING, &few) == 0);
	all_arrive();
	once_each();
	after_a_bad_buffer();
	return 0;
}
