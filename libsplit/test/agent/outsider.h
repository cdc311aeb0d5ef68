/* SPDX-License-Identifier: Apache-2.0 */
/* A process without the library that has a file of the world open. */
#ifndef TEST_OUTSIDER_H
#define TEST_OUTSIDER_H

#include "played.h"

struct outsider {
	pid_t pid;
	int in, out; /* it reads from in's other end, and says on out's what it has done */
};

/* A process of its own, of which `in` and `out` are standard input and output and nothing else is open; in it pid is 0. */
static inline struct outsider outsider_fork(void)
{
	int to[2], from[2];
	struct outsider o;

	CHECK_EQ(pipe(to), 0);
	CHECK_EQ(pipe(from), 0);
	fflush(NULL);
	o.pid = fork();
	CHECK(o.pid >= 0);
	if (o.pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close_range(3, ~0u, 0); /* the world's descriptor of the file among them */
		munmap(played_library, PLAYED_LIBRARY);
		return o;
	}
	close(to[0]);
	close(from[1]);
	o.in = to[1];
	o.out = from[0];
	return o;
}

/* A process that opens the file "f" and says so, and closes it when it is told. */
static inline struct outsider outsider_open(const struct world *w, int flags)
{
	const struct outsider o = outsider_fork();
	char path[256], c;
	int fd;

	if (o.pid == 0) {
		snprintf(path, sizeof(path), "%s/f", w->dir);
		fd = open(path, flags);
		_exit(fd >= 0 && write(1, "o", 1) == 1 && read(0, &c, 1) == 1 && close(fd) == 0 && write(1, "c", 1) == 1 &&
				      read(0, &c, 1) == 0
			      ? 0
			      : 1);
	}
	return o;
}

/* What it has done within timeout_ms, or 0. */
static inline char outsider_said(const struct outsider *o, int timeout_ms)
{
	struct pollfd p = {o->out, POLLIN, 0};
	char c = 0;

	return poll(&p, 1, timeout_ms) > 0 && read(o->out, &c, 1) == 1 ? c : 0;
}

static inline void outsider_close(struct outsider *o)
{
	CHECK_EQ(write(o->in, "x", 1), 1);
	CHECK_EQ(outsider_said(o, PATIENCE), 'c');
}

static inline void outsider_end(struct outsider *o)
{
	int status;

	close(o->in);
	CHECK_EQ(waitpid(o->pid, &status, 0), o->pid);
	CHECK_EQ(status, 0);
	close(o->out);
}

/* A world with the file "f" of so many bytes and an agent, which has to be root's; a test that is not has been skipped. */
static inline void outsider_world(struct world *w, struct played_agent *a, struct world_file *f, size_t bytes)
{
	if (geteuid() != 0) {
		printf("the kernel asks root only\n");
		exit(77);
	}
	world_new(w);
	*f = world_file(w, "f", 'o', bytes);
	agent_start(a, w);
}

#endif
