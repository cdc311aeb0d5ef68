/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For unaware_child and unaware_rights: lines of two writers, one of whom is a program without any environment. In strict, which replaces
 * whole blocks, they take turns.
 */
#ifndef SFS_TEST_POSIX_UNAWARE_H
#define SFS_TEST_POSIX_UNAWARE_H

#include "check.h"

#include <stdbool.h>

#define LINES 400
#define LINE  24
#define TURN  30 /* where the child is told, and where it tells: descriptors that any child inherits, however it is started */
#define DONE  31

static char how_to_write[8] = "child";
static char *nothing[] = {NULL};
static int to_child[2], to_parent[2];

static inline void write_lines(int fd, char who, int from, int n)
{
	char line[LINE + 1];

	for (int i = from; i < from + n; i++) {
		snprintf(line, sizeof(line), "%c %020d\n", who, i);
		CHECK(write(fd, line, LINE - 1) == LINE - 1);
	}
}

/* The program without an environment: lines to each of n files. */
static inline int child(const int *fds, int n)
{
	const bool turns = how_to_write[0] == 't';

	for (int i = 0; i < LINES; i++) {
		if (turns)
			hear(TURN);
		for (int k = 0; k < n; k++)
			write_lines(fds[k], 'c', i, 1);
		if (turns)
			tell(DONE);
	}
	return 0;
}

/* Is this process that program? */
static inline bool is_child(int argc, char **argv)
{
	if (argc != 2 || (strcmp(argv[1], "child") != 0 && strcmp(argv[1], "turns") != 0))
		return false;
	memcpy(how_to_write, argv[1], sizeof("turns"));
	return true;
}

/* For whoever starts it: do they take turns? */
static inline bool in_turns(void)
{
	const char *config = getenv("SPLITFS_CONFIG");
	const bool strict = config && strncmp(config, "strict", 6) == 0;

	if (geteuid() != 0)
		SKIP("the agent must be root to be asked by the kernel");
	if (strict)
		memcpy(how_to_write, "turns", sizeof("turns"));
	return strict;
}

static inline void turns_begin(void)
{
	CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_parent, O_CLOEXEC) == 0);
	CHECK(dup2(to_child[0], TURN) == TURN && dup2(to_parent[1], DONE) == DONE);
}

static inline void take_turn(void)
{
	tell(to_child[1]);
	hear(to_parent[0]);
}

static inline void turns_end(void)
{
	close(TURN);
	close(DONE);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

/* Of the parent n, of the child LINES, each writer's in order and whole. */
static inline void check_lines(int fd, const char *name, const char *how, int n)
{
	int of[2] = {0, 0}, i;
	char line[LINE], who;

	for (off_t at = 0; at < size_of(fd); at += LINE - 1) {
		bool whole;

		CHECK(pread(fd, line, LINE - 1, at) == LINE - 1);
		whole = line[LINE - 2] == '\n';
		line[LINE - 1] = 0;
		whole = whole && sscanf(line, "%c %d\n", &who, &i) == 2 && (who == 'p' || who == 'c');
		if (!whole || i != of[who == 'c'])
			fprintf(stderr, "%s, %s: after %d and %d lines: %s\n", name, how, of[0], of[1],
				whole ? line : "a torn one");
		CHECK(whole && i == of[who == 'c']++);
	}
	if (of[0] != n || of[1] != LINES)
		fprintf(stderr, "%s, %s: %d and %d lines of %d and %d\n", name, how, of[0], of[1], n, LINES);
	CHECK(of[0] == n && of[1] == LINES);
}

#endif
