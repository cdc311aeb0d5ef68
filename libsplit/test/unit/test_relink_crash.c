/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relink() killed before and after each of its system calls, then repeated: by the same provider or by another one, once and
 * again. The target must end up right every time (the rules in relink.h).
 *
 *   test_relink_crash [DIR [CASES]]
 */
#include "relink_case.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* Run relink() in a child and kill it at its stop number `stop`. Returns 1 when it finished before that. */
static int killed_at(const struct relink_case *c, enum relink_provider provider, int stop)
{
	int status, sig = 0;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(relink(provider, &c->r, NULL) < 0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	for (int n = 0;; n++) {
		if (n == stop) {
			CHECK_EQ(kill(pid, SIGKILL), 0);
			CHECK_EQ(waitpid(pid, &status, 0), pid);
			return 0;
		}
		CHECK_EQ(ptrace(PTRACE_SYSCALL, pid, 0, sig), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			CHECK_EQ(WEXITSTATUS(status), 0);
			return 1;
		}
		CHECK(WIFSTOPPED(status));
		sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
	}
}

static void repeat(const struct relink_case *c, enum relink_provider provider)
{
	uint64_t moved;
	int flags = relink(provider, &c->r, &moved);

	if (flags < 0)
		FAIL("repetition by %s: %s", relink_provider_name(provider), strerror(-flags));
	CHECK_EQ(moved, c->r.len);
	case_check_target(c);
}

int main(int argc, char **argv)
{
	const char *dir = argc > 1 ? argv[1] : "/dev/shm";
	int cases = argc > 2 ? atoi(argv[2]) : 12, finished, crashes = 0;
	static struct relink_case c;
	uint64_t rnd;

	for (int first = RELINK_NONE + 1; first < RELINK_PROVIDERS; first++) {
		for (int i = 0; i < cases; i++) {
			finished = 0;
			for (int stop = 1; !finished; stop++) {
				int donor = test_file(dir, "donor"), target = test_file(dir, "target");

				rnd = test_seed(7) + (uint64_t)i * 1000003;
				case_make(&c, &rnd, donor, target, i & 1);
				c.r.persistent = true; /* short ranges are moved, too */
				finished = killed_at(&c, first, stop);
				crashes += !finished;
				/* Whoever recovers may find another provider (an upgrade, another mount). */
				repeat(&c, RELINK_NONE + 1 + (stop + i) % (RELINK_PROVIDERS - 1));
				repeat(&c, first);
				close(donor);
				close(target);
			}
		}
	}
	printf("%d crashes\n", crashes);
	CHECK(crashes > 20 * cases);
	return 0;
}
