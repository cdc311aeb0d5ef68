/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines written to one open file at the same time, by this process, by a child of it, and by a program with no environment (so without
 * any library): all are there, whole, each writer's in order. Under descriptor 1, at the shared offset and appending.
 */
#include "check.h"

enum { LINES = 8000, WRITERS = 3, WIDTH = 16 };

static void lines(int fd, char who)
{
	char line[WIDTH + 1];

	for (int i = 0; i < LINES; i++) {
		snprintf(line, sizeof(line), "%c%014d\n", who, i);
		CHECK(write(fd, line, WIDTH) == WIDTH);
	}
}

static void share(const char *name, int to, int flags)
{
	int fd, next[WRITERS] = {0};
	char line[WIDTH + 1] = {0}, number[8];
	pid_t pid[2];

	CHECK((fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644)) >= 0 && dup2(fd, to) == to && close(fd) == 0);
	CHECK(write(to, "written before\n\n", WIDTH) == WIDTH);
	if ((pid[0] = fork()) == 0) {
		lines(to, '1');
		_exit(0);
	}
	sprintf(number, "%d", to);
	if ((pid[1] = fork()) == 0) {
		execle("/proc/self/exe", "shared_lines", "2", number, NULL, (char *[]){NULL});
		_exit(127);
	}
	lines(to, '0');
	CHECK(status_of(pid[0]) == 0 && status_of(pid[1]) == 0);
	CHECK(size_of(to) == (off_t)WIDTH * (1 + WRITERS * LINES));
	CHECK(pread(to, line, WIDTH, 0) == WIDTH && strcmp(line, "written before\n\n") == 0);
	for (int i = 1; i <= WRITERS * LINES; i++) {
		int who;

		CHECK(pread(to, line, WIDTH, (off_t)i * WIDTH) == WIDTH);
		who = *line - '0';
		if (who < 0 || who >= WRITERS || line[WIDTH - 1] != '\n' || atoi(line + 1) != next[who]) {
			fprintf(stderr, "%s: line %d is '%.15s'\n", name, i, line);
			exit(1);
		}
		next[who]++;
	}
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		lines(atoi(argv[2]), *argv[1]);
		return 0;
	}
	share("out", 1, 0);
	share("log", 1, O_APPEND);
	return 0;
}
