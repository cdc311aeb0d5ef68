/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that send what nobody should: random bytes, wrong lengths, descriptors of all kinds and in any number, requests ahead,
 * connections without end, logs and staging files cut off under the agent's hands. An honest client is served all the time, and
 * when they are gone the agent has as many descriptors as before.
 */
#include <netinet/in.h>
#include <sys/eventfd.h>

#include "played.h"

static struct played_agent a;
static struct world w;
static struct world_file f, honest_file;
static struct played honest;

static void honest_works(void)
{
	uint32_t id;
	int fd = played_chunk(&honest, &id);

	CHECK(fd >= 0);
	close(fd);
	played_notify(&honest, SFS_MSG_RETURN, id, 0);
	CHECK_EQ(played_acquire(&honest, &honest_file, 0), SFS_DELEG_EXCLUSIVE);
}

static int any_fd(uint64_t *rng)
{
	int p[2], fd;

	switch (test_below(rng, 8)) {
	case 0:
		CHECK_EQ(pipe(p), 0);
		close(p[0]);
		return p[1];
	case 1:
		return socket(AF_UNIX, SOCK_STREAM, 0);
	case 2:
		return eventfd(0, 0);
	case 3:
		return openat(w.root.fd, ".", O_RDONLY);
	case 4:
		return open("/proc/self/mem", O_RDWR);
	case 5:
		return openat(w.root.fd, "f", O_PATH);
	case 6:
		fd = open("/dev/null", O_RDWR);
		return fd;
	default:
		return openat(w.root.fd, "f", O_RDWR);
	}
}

/* One connection that starts well or not and goes on badly. */
static void fuzz(uint64_t *rng)
{
	struct played c = {.sock = -1, .event = -1, .log_fd = -1};
	const bool hello = test_below(rng, 3) > 0;

	if (hello) {
		if (played_hello(&c, &a, (enum sfs_mode)test_below(rng, 3), 0, f.fd) < 0)
			return;
	} else {
		c.sock = played_connect(&a);
		if (c.sock < 0)
			return;
	}
	for (int i = (int)test_below(rng, 20); i >= 0; i--) {
		unsigned char raw[256];
		struct sfs_msg m;
		int fds[20], nfds = test_below(rng, 2) ? 0 : (int)test_below(rng, test_below(rng, 4) ? 3 : 20), r;
		size_t n = sizeof(m);

		test_fill(rng, raw, sizeof(raw));
		memcpy(&m, raw, sizeof(m));
		if (test_below(rng, 8)) {
			m.version = SFS_PROTO_OLDEST;
			m.type = (uint16_t)test_below(rng, 9);
			m.a = test_below(rng, 2) ? f.ino : test_below(rng, 5);
			m.b = test_below(rng, 2) ? f.gen : test_below(rng, 5);
			m.c = test_below(rng, 5);
		}
		if (test_below(rng, 10) == 0)
			n = test_below(rng, sizeof(raw));
		memcpy(raw, &m, sizeof(m));
		for (int k = 0; k < nfds; k++) {
			fds[k] = any_fd(rng);
			CHECK(fds[k] >= 0);
		}
		r = played_send(test_below(rng, 8) || c.event < 0 ? c.sock : c.event, raw, n, fds, nfds);
		for (int k = 0; k < nfds; k++)
			close(fds[k]);
		if (r < 0)
			break;
		/* Sometimes it reads its replies. */
		if (test_below(rng, 3) == 0) {
			struct sfs_msg reply;
			int got[4];

			while (played_recv(c.sock, &reply, got, 4, 1) == 1)
				for (int k = 0; k < 4; k++)
					if (got[k] >= 0)
						close(got[k]);
		}
	}
	if (c.log_fd >= 0) {
		if (test_below(rng, 3) == 0)
			CHECK_EQ(ftruncate(c.log_fd, (off_t)test_below(rng, 20000)), 0);
		else if (test_below(rng, 2))
			for (int i = 0; i < 50; i++) {
				unsigned char raw[64];

				test_fill(rng, raw, sizeof(raw));
				CHECK_EQ(pwrite(c.log_fd, raw, 64, (off_t)test_below(rng, 30000)), 64);
			}
		close(c.log_fd);
	}
	if (c.event >= 0)
		close(c.event);
	close(c.sock);
}

/* Requests without reading a reply, until the agent has had enough or the socket is full. */
static void flood(void)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_ACQUIRE, .a = f.ino, .b = f.gen};
	struct played c;
	int flags;

	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	flags = fcntl(c.sock, F_GETFL);
	CHECK_EQ(fcntl(c.sock, F_SETFL, flags | O_NONBLOCK), 0);
	for (int i = 0; i < 20000; i++) {
		int r = played_send(c.sock, &m, sizeof(m), &f.fd, 1);

		if (r == -EPIPE || r == -ECONNRESET)
			break;
		if (r == -EAGAIN && i > 5000)
			break;
		if (r == -EAGAIN)
			usleep(100);
	}
	honest_works();
	played_close(&c);
}

static void many_connections(void)
{
	static int socks[600];
	int n = 0;

	for (int i = 0; i < 600; i++) {
		int s = played_connect(&a);

		if (s >= 0)
			socks[n++] = s;
	}
	honest_works();
	for (int i = 0; i < n; i++)
		close(socks[i]);
}

/* A client whose service thread never answers keeps nobody waiting but those who want its file. */
static void deaf(void)
{
	struct played c, d;

	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_hello(&d, &a, SFS_STRICT, 0, f.fd), 0);
	played_ask(&d, &f, f.fd, 0);
	honest_works();
	played_close(&c);
	CHECK(played_answer(&d, PATIENCE) >= SFS_DELEG_SHARED);
	played_close(&d);
}

/* A socket whose close waits until the other side has read what was sent, which it does not. *other: that side's. */
static int lingering(int listener, int *other)
{
	struct sockaddr_in to;
	socklen_t n = sizeof(to);
	const struct linger wait = {1, 60};
	static char buf[65536];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && getsockname(listener, (struct sockaddr *)&to, &n) == 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	*other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	CHECK(*other >= 0);
	while (send(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
	return fd;
}

/* One message with such sockets, of which there is no other descriptor. */
static void send_lingering(int sock, int listener, size_t bytes, int nfds, int *others)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_HELLO};
	int fds[32];

	for (int i = 0; i < nfds; i++)
		fds[i] = lingering(listener, &others[i]);
	CHECK_EQ(played_send(sock, &m, bytes, fds, nfds), 0);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
}

/* In the queue of a socket that is sent, so deep; the last of whose descriptors is the agent's. */
static void send_nested(int sock, int listener, int depth, int *other)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_HELLO};
	int fd = lingering(listener, other), pair[2];

	for (int i = 0; i < depth; i++) {
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		CHECK_EQ(played_send(pair[0], "x", 1, &fd, 1), 0);
		close(fd);
		close(pair[0]);
		fd = pair[1];
	}
	CHECK_EQ(played_send(sock, &m, sizeof(m), &fd, 1), 0);
	close(fd);
}

static int64_t ms_of_honest(void)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	honest_works();
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
}

/* Those that lie in what was sent, and those behind empty messages, which look like the end of what was sent. */
static void slow_and_deep(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), other;

	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 4) == 0);
	for (int depth = 0; depth <= 4; depth++) {
		const int sock = played_connect(&a);

		kill(a.pid, SIGSTOP);
		if (depth == 0)
			for (int i = 0; i < 3; i++)
				CHECK_EQ(played_send(sock, "", 0, NULL, 0), 0);
		send_nested(sock, listener, depth, &other);
		close(sock);
		kill(a.pid, SIGCONT);
		CHECK(ms_of_honest() < 5000);
		close(other);
	}
	close(listener);
}

/*
 * Descriptors whose close takes long: as proof, too many of them, with half a message; and behind that, where nobody reads
 * them any more.
 */
static void slow_to_close(void)
{
	static const struct {
		size_t bytes;
		int nfds;
	} sent[] = {{sizeof(struct sfs_msg), 1}, {sizeof(struct sfs_msg), 20}, {7, 1}};
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), others[64], n = 0;

	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 4) == 0);
	for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
		const int sock = played_connect(&a);

		kill(a.pid, SIGSTOP);
		send_lingering(sock, listener, sent[i].bytes, sent[i].nfds, &others[n]);
		n += sent[i].nfds;
		send_lingering(sock, listener, sizeof(struct sfs_msg), 2, &others[n]);
		n += 2;
		kill(a.pid, SIGCONT);
		honest_works();
		close(sock);
		honest_works();
	}
	while (n > 0)
		close(others[--n]);
	close(listener);
}

int main(void)
{
	const struct sfs_agent_config config = {.pool_bytes = 16u << 20, .chunk_bytes = WORLD_CHUNK, .log_bytes = 64 << 10};
	uint64_t rng = test_seed(11);
	int before, status;

	signal(SIGPIPE, SIG_IGN);
	world_new(&w);
	f = world_file(&w, "f", 'o', 4096);
	honest_file = world_file(&w, "honest", 'h', 4096);
	agent_start_with(&a, &w, &config);
	CHECK_EQ(played_hello(&honest, &a, SFS_STRICT, 0, honest_file.fd), 0);
	honest_works();
	before = agent_fds(&a);
	for (int i = 0; i < 400; i++) {
		fuzz(&rng);
		if (i % 50 == 0)
			honest_works();
	}
	flood();
	deaf();
	many_connections();
	slow_to_close();
	slow_and_deep();
	honest_works();
	/* Spare logs are no leak. */
	EVENTUALLY(abs(agent_fds(&a) - before) <= SFS_SPARE_LOGS_MAX + 2 * SFS_KEPT_LOGS_MAX);
	CHECK_EQ(waitpid(a.pid, &status, WNOHANG), 0);
	world_expect(&honest_file, 4096, 0, 4096, 'h');
	played_close(&honest);
	agent_end(&a);
	close(f.fd);
	close(honest_file.fd);
	world_end(&w);
	return 0;
}
