/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any conversation of up to three clients with the agent, which runs as a thread of this process. After it the agent must still
 * welcome an honest client, give it a file alone, and have kept no client that is gone.
 */
#include <pthread.h>

#include "../agent/played.h"
#include "fuzz.h"

#define CLIENTS 3

static struct played_agent agent;
static struct world_file files[2];
static int foreign, directory;

static void *serve(void *ready)
{
	struct sfs_agent_config c = {.root = fuzz_world.dir,
				     .agents_dir = agent.dir,
				     .pool_bytes = 8u << 20,
				     .chunk_bytes = WORLD_CHUNK,
				     .log_bytes = 8192,
				     .ready_fd = *(int *)ready};
	struct sfs_why why = {0};

	if (sfs_agent_run(&c, &why))
		fprintf(stderr, "agent: %s\n", why.text);
	abort();
}

static void agent_end_dir(void)
{
	unlink(agent.sock);
	rmdir(agent.dir);
}

static void start(struct world *w)
{
	struct sfs_why why;
	pthread_t thread;
	char ready[6];
	static int p[2];

	strcpy(agent.dir, "/tmp/sfs-agents.XXXXXX");
	CHECK(mkdtemp(agent.dir));
	atexit(agent_end_dir);
	files[0] = world_file(w, "a", 'a', 1000);
	files[1] = world_file(w, "b", 'b', 1000);
	foreign = open("/proc/self/exe", O_RDONLY);
	directory = open(w->dir, O_RDONLY | O_DIRECTORY);
	CHECK_EQ(pipe(p), 0);
	/* Its messages are many and say what the input did. */
	CHECK_EQ(pthread_create(&thread, NULL, serve, &p[1]), 0);
	CHECK_EQ(read(p[0], ready, 6), 6);
	CHECK_EQ(sfs_agent_socket_path(agent.sock, agent.dir, major(w->root.dev), minor(w->root.dev), &why), 0);
}

static uint64_t value(struct input *in, const struct played *c)
{
	const uint8_t b = take_byte(in);
	uint64_t v;

	switch (b & 7) {
	case 0:
		return files[0].ino;
	case 1:
		return files[1].ino;
	case 2:
		return files[b >> 3 & 1].gen;
	case 3:
		return c->log;
	case 4:
		take(in, &v, sizeof(v));
		return v;
	default:
		return b >> 3;
	}
}

static int descriptor(unsigned b)
{
	const int fds[8] = {-1, files[0].fd, files[1].fd, files[0].fd, foreign, directory, -1, files[1].fd};

	return fds[b & 7];
}

/* What has come in is read, so that nobody is thrown out for not reading; the last REVOKE is kept. */
static void drain(struct played *c, struct sfs_msg *revoke)
{
	struct sfs_msg m;
	int fds[3]; /* a HELLO that knows of the table gets it, too */

	while (c->sock >= 0 && played_recv(c->sock, &m, fds, 3, 0) == 1) {
		if (m.type == SFS_MSG_HELLO && m.status == 0 && c->event < 0) {
			c->log = (uint32_t)m.a;
			c->event = fds[1];
			fds[1] = -1;
		}
		for (int i = 0; i < 3; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	while (c->event >= 0 && played_recv(c->event, &m, fds, 1, 0) == 1)
		*revoke = m;
}

static void hang_up(struct played *c)
{
	if (c->sock >= 0)
		close(c->sock);
	if (c->event >= 0)
		close(c->event);
	*c = (struct played){.sock = -1, .event = -1, .log_fd = -1};
}

static void step(struct input *in, struct played *c, struct sfs_msg *revoke)
{
	const uint8_t what = take_byte(in);
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = what & 15};
	const int fd = descriptor(what >> 4);

	if (c->sock < 0) {
		c->sock = played_connect(&agent);
		c->event = -1;
		if (c->sock < 0)
			return;
	}
	drain(c, revoke);
	if (m.type == 9) {
		hang_up(c);
		return;
	}
	if (m.type == 10) {
		take(in, &m, sizeof(m));
	} else if (m.type == 11 && c->event >= 0) {
		m = *revoke;
		m.type = SFS_MSG_REVOKED;
		played_send(c->event, &m, sizeof(m), NULL, 0);
		return;
	} else {
		m.a = value(in, c);
		m.b = value(in, c);
		m.c = value(in, c);
		m.d = value(in, c);
	}
	if (m.type == SFS_MSG_REVOKED && c->event >= 0)
		played_send(c->event, &m, sizeof(m), NULL, 0);
	else
		played_send(c->sock, &m, what & 0x80 ? 64 : 64 - (what & 1), fd >= 0 ? &fd : NULL, fd >= 0);
	drain(c, revoke);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct played c[CLIENTS], honest;
	struct sfs_msg revoke[CLIENTS] = {0};
	struct world *w = fuzz_volume();
	struct input in = {data, size};
	struct world_file f;

	if (!agent.dir[0])
		start(w);
	for (int i = 0; i < CLIENTS; i++)
		c[i] = (struct played){.sock = -1, .event = -1, .log_fd = -1};
	for (int n = 0; n < 64 && in.left; n++) {
		const unsigned i = take_byte(&in) % CLIENTS;

		step(&in, &c[i], &revoke[i]);
	}
	for (int i = 0; i < CLIENTS; i++)
		hang_up(&c[i]);
	f = files[0];
	MUST(played_hello(&honest, &agent, SFS_STRICT, 0, f.fd) == 0);
	/* The agent may not have seen yet that the others are gone. */
	EVENTUALLY(played_acquire(&honest, &f, 0) == SFS_DELEG_EXCLUSIVE);
	played_close(&honest);
	world_expect(&files[1], 1000, 0, 1000, 'b');
	return 0;
}
