/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a FILE's buffer when the process ends without fclose, by each of the ways to end. */
#include "check.h"

#include <signal.h>

static FILE *f;

static void late(void)
{
	fputs(" late", f);
}

static void end_by(char how)
{
	CHECK((f = fopen("f", "w")) && fputs("flushed", f) >= 0 && fflush(f) == 0 && fputs(" buffered", f) >= 0);
	switch (how) {
	case 'h':
		CHECK(atexit(late) == 0);
		exit(0);
	case 'e':
		exit(0);
	case 'q':
		quick_exit(0);
	case '_':
		_exit(0);
	case 'a':
		signal(SIGABRT, SIG_DFL);
		abort();
	case 'k':
		raise(SIGKILL);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *how, *left;
		int status;
	} ways[] = {
		{"r", "flushed buffered", 0},
		{"e", "flushed buffered", 0},
		{"h", "flushed buffered late", 0},
		{"q", "flushed", 0},
		{"_", "flushed", 0},
		{"a", "flushed", 128 + SIGABRT},
		{"k", "flushed", 128 + SIGKILL},
	};

	if (argc > 1) {
		end_by(*argv[1]);
		return 0; /* 'r' */
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		pid_t pid = fork();
		int fd;

		if (pid == 0) {
			execl("/proc/self/exe", "stream_exit", ways[i].how, (char *)NULL);
			_exit(9);
		}
		CHECK(status_of(pid) == ways[i].status);
		CHECK((fd = open("f", O_RDONLY)) >= 0);
		/* Whom SIGKILL has ended, the agent has to recover first: opening waits for that. */
		if (size_of(fd) != (off_t)strlen(ways[i].left))
			fprintf(stderr, "'%s' left %lld bytes\n", ways[i].how, (long long)size_of(fd));
		CHECK(close(fd) == 0);
		expect_file("f", ways[i].left);
	}
	return 0;
}
