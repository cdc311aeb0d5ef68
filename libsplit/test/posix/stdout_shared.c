/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines written to one open file at the same time, by this process to descriptor 1, by a child of it, and by a program with no
 * environment (so without any library): all are there, whole, each writer's in order.
 */
#include "check.h"

enum { LINES = 8000, WRITERS = 3, WIDTH = 16 };

static void lines(char who)
{
	char line[WIDTH + 1];

	for (int i = 0; i < LINES; i++) {
		snprintf(line, sizeof(line), "%c%014d\n", who, i);
		CHECK(write(1, line, WIDTH) == WIDTH);
	}
}

int main(int argc, char **argv)
{
	int fd, next[WRITERS] = {0};
	char line[WIDTH + 1] = {0};
	pid_t pid[2];

	if (argc == 2) {
		lines(*argv[1]);
		return 0;
	}
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && dup2(fd, 1) == 1 && close(fd) == 0);
	CHECK(write(1, "written before\n\n", WIDTH) == WIDTH);
	if ((pid[0] = fork()) == 0) {
		lines('1');
		_exit(0);
	}
	if ((pid[1] = fork()) == 0) {
		execle("/proc/self/exe", "stdout_shared", "2", NULL, (char *[]){NULL});
		_exit(127);
	}
	lines('0');
	CHECK(status_of(pid[0]) == 0 && status_of(pid[1]) == 0 && size_of(1) == (off_t)WIDTH * (1 + WRITERS * LINES));
	CHECK(pread(1, line, WIDTH, 0) == WIDTH && strcmp(line, "written before\n\n") == 0);
	for (int i = 1; i <= WRITERS * LINES; i++) {
		int who;

		CHECK(pread(1, line, WIDTH, (off_t)i * WIDTH) == WIDTH);
		who = *line - '0';
		if (who < 0 || who >= WRITERS || line[WIDTH - 1] != '\n' || atoi(line + 1) != next[who]) {
			fprintf(stderr, "line %d is '%.15s'\n", i, line);
			return 1;
		}
		next[who]++;
	}
	return 0;
}
