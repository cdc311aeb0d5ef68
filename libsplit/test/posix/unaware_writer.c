/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without any environment (so without whatever was preloaded) opens a file that we have: at once it sees all that we
 * wrote, and what both write from then on, also at the same time and into the same blocks, is all there.
 */
#include "check.h"

#include <stdbool.h>

#define LINES	2000
#define LINE	24
#define RECORDS 4000
#define RECORD	16

static int to_child[2], to_parent[2];

static void append_lines(int fd, char who, int n)
{
	char line[LINE + 1];

	for (int i = 0; i < n; i++) {
		snprintf(line, sizeof(line), "%c %020d\n", who, i);
		CHECK(write(fd, line, LINE - 1) == LINE - 1);
	}
}

/* Records of `mine`, every second one, in place. */
static void put_records(int fd, unsigned mine)
{
	for (unsigned i = mine; i < RECORDS; i += 2)
		put(fd, 10 + mine, (off_t)i * RECORD, RECORD);
}

static int stranger(bool together)
{
	int log, data;

	to_child[0] = 3;
	to_parent[1] = 4;
	tell(to_parent[1]);
	hear(to_child[0]);
	CHECK((log = open("log", O_WRONLY | O_APPEND)) >= 0 && (data = open("data", O_RDWR)) >= 0);
	CHECK(size_of(log) == LINES * (LINE - 1) && size_of(data) == RECORDS * RECORD);
	expect(data, 1, 0, RECORDS * RECORD);
	tell(to_parent[1]);
	if (!together)
		hear(to_child[0]);
	append_lines(log, 's', LINES);
	put_records(data, 1);
	tell(to_parent[1]);
	hear(to_child[0]);
	return 0;
}

static void check_lines(int n)
{
	FILE *f = fopen("log", "r");
	char line[64];
	int ours = 0, theirs = 0, i;
	char who;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		CHECK(sscanf(line, "%c %d\n", &who, &i) == 2 && (who == 'w' || who == 's'));
		CHECK(who == 'w' ? i == ours++ % LINES : i == theirs++);
	}
	fclose(f);
	CHECK(ours == n && theirs == LINES);
}

static void check_records(int fd)
{
	for (unsigned i = 0; i < RECORDS; i++)
		expect(fd, 10 + i % 2, (off_t)i * RECORD, RECORD);
}

int main(int argc, char **argv)
{
	const char *config = getenv("SPLITFS_CONFIG");
	/* strict writes whole blocks, so with a stranger only in turns. */
	const bool together = !config || strncmp(config, "strict", 6) != 0;
	int log, data;
	pid_t pid;

	if (argc == 2)
		return stranger(argv[1][0] == 't');
	if (geteuid() != 0)
		SKIP("the agent must be root to be asked by the kernel");
	CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_parent, O_CLOEXEC) == 0);
	if ((pid = fork()) == 0) {
		if (dup2(to_child[0], 13) != 13 || dup2(to_parent[1], 14) != 14 || dup2(13, 3) != 3 || dup2(14, 4) != 4)
			_exit(126);
		execle("/proc/self/exe", "unaware_writer", together ? "together" : "in turns", NULL, (char *[]){NULL});
		_exit(127);
	}
	CHECK(close(to_child[0]) == 0 && close(to_parent[1]) == 0);
	hear(to_parent[0]);
	/* Only now, so that nothing is handed over to it. */
	CHECK((log = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) >= 0);
	CHECK((data = open("data", O_RDWR | O_CREAT | O_CLOEXEC, 0644)) >= 0);
	append_lines(log, 'w', LINES);
	put(data, 1, 0, RECORDS * RECORD);
	tell(to_child[1]);
	hear(to_parent[0]);
	append_lines(log, 'w', LINES);
	put_records(data, 0);
	if (!together)
		tell(to_child[1]);
	hear(to_parent[0]);
	check_lines(2 * LINES);
	check_records(data);
	tell(to_child[1]);
	CHECK(status_of(pid) == 0);
	/* It has gone: the files are ours alone again. */
	append_lines(log, 'w', LINES);
	put_records(data, 0);
	check_lines(3 * LINES);
	check_records(data);
	return 0;
}
