/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that kill a writer: every write that had returned must be in the file soon after. */
#ifndef SFS_TEST_POSIX_KILL_H
#define SFS_TEST_POSIX_KILL_H

#include "check.h"

#include <signal.h>
#include <time.h>

#define RECOVERED_SECONDS 10

/*
 * writer() writes to file "f" for ever and reports on the pipe the number of the write that has just returned; it is killed when it
 * has come to `enough`. found() says how many writes are in the file, from the first on.
 */
static inline void kill_writer(void (*writer)(int report, int arg), int64_t (*found)(int arg), int arg, uint32_t enough)
{
	uint32_t last = 0;
	int64_t got;
	int pipes[2];
	time_t end;
	pid_t pid;

	unlink("f");
	CHECK(pipe(pipes) == 0);
	if ((pid = fork()) == 0) {
		close(pipes[0]);
		writer(pipes[1], arg);
		_exit(1);
	}
	close(pipes[1]);
	while (last < enough)
		CHECK(read(pipes[0], &last, 4) == 4);
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
	while (read(pipes[0], &last, 4) == 4) /* what it reported until it died */
		;
	close(pipes[0]);
	end = time(NULL) + RECOVERED_SECONDS;
	while ((got = found(arg)) <= last && time(NULL) < end)
		usleep(50000);
	if (got <= last)
		fprintf(stderr, "%u writes returned, %lld are there\n", last + 1, (long long)got);
	CHECK(got > last);
}

#endif
