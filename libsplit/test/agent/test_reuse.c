/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client leaves goes to the next one of its user, as new; not while anybody has it open or mapped, not to others, and not beyond
 * the agent's end.
 */
#include <sys/mman.h>

#include "played.h"

#define OTHER_USER 4711

static struct world w;
static struct played_agent a;
static struct world_file f;

static void hello(struct played *c)
{
	CHECK_EQ(played_hello_knows(c, &a, SFS_STRICT, 0, f.fd, SFS_FEATURE_GROW), 0);
}

/* The connection last: its end is what the agent sees. */
static void leave(struct played *c)
{
	close(c->log_fd);
	close(c->event);
	close(c->sock);
}

/* All of the agent's threads sleep: what one has done the other has seen. */
static bool idle(void)
{
	for (int i = 0; i < 3; i++, usleep(1000)) {
		char path[64];
		struct dirent *e;
		bool sleeps = true;
		DIR *d;

		snprintf(path, sizeof(path), "/proc/%d/task", (int)a.pid);
		d = opendir(path);
		CHECK(d);
		while ((e = readdir(d)))
			sleeps = sleeps && (atoi(e->d_name) == 0 || sfs_process_state(atoi(e->d_name)) == 'S');
		closedir(d);
		if (!sleeps)
			return false;
	}
	return true;
}

static bool kept(uint32_t log)
{
	struct sfs_leasefile l;
	bool yes;

	if (sfs_lease_load(&w.root, log, &l, NULL))
		return false;
	yes = l.head.held == SFS_HELD_SPARE;
	sfs_lease_close(&l);
	return yes;
}

static bool spare(uint32_t log)
{
	return kept(log) && idle();
}

static bool gone(uint32_t log)
{
	const int fd = sfs_log_open(&w.root, log, O_RDONLY);

	if (fd >= 0)
		close(fd);
	return fd == -ENOENT;
}

/* As the agent makes one, but for the epoch. */
static void is_new(const struct played *c)
{
	struct sfs_log_header h;
	struct sfs_log_stats s, none = {0};

	CHECK_EQ(pread(c->log_fd, &h, sizeof(h), 0), sizeof(h));
	CHECK_EQ(pread(c->log_fd, &s, sizeof(s), sizeof(h)), sizeof(s));
	CHECK_EQ(h.log_id, c->log);
	CHECK_MEM(&s, &none, sizeof(s));
	CHECK_MEM(&h.claims, &none, sizeof(h.claims));
	CHECK_MEM(&h.later, &none, sizeof(h.later));
	CHECK_MEM(&h.latency, &none, sizeof(h.latency));
}

/* A tiny staging file of zeros. */
static int tiny(struct played *c, uint32_t *id)
{
	uint64_t bytes = 0;
	const int fd = played_chunk_for(c, 100, id, &bytes);
	static const char none[SFS_TINY_CHUNK];
	char data[SFS_TINY_CHUNK];

	CHECK(fd >= 0);
	CHECK_EQ(bytes, SFS_TINY_CHUNK);
	CHECK_EQ(lseek(fd, 0, SEEK_HOLE), bytes);
	CHECK_EQ(pread(fd, data, sizeof(data), 0), sizeof(data));
	CHECK_MEM(data, none, sizeof(data));
	return fd;
}

/* Stage something, count something, claim something; half of it would show in the next one's file if it counted again. */
static void use(struct played *c, char byte, uint32_t *id)
{
	char data[4096];
	struct sfs_log_header h;
	struct sfs_log_stats s;
	int fd;

	CHECK_EQ(played_acquire(c, &f, 0), SFS_DELEG_EXCLUSIVE);
	fd = tiny(c, id);
	memset(data, byte, sizeof(data));
	CHECK_EQ(pwrite(fd, data, sizeof(data), 0), sizeof(data));
	played_record(&w, c, &f, 0, *id, 0, sizeof(data), 0);
	close(fd);
	memset(&s, 7, sizeof(s));
	memset(&h.claims, 7, sizeof(h.claims));
	memset(&h.later, 7, sizeof(h.later));
	memset(&h.latency, 7, sizeof(h.latency));
	CHECK_EQ(pwrite(c->log_fd, &s, sizeof(s), sizeof(h)), sizeof(s));
	CHECK_EQ(pwrite(c->log_fd, &h.claims, sizeof(h.claims), SFS_CLAIMS_OFFSET), sizeof(h.claims));
	CHECK_EQ(pwrite(c->log_fd, &h.later, sizeof(h.later), SFS_LATER_OFFSET), sizeof(h.later));
	CHECK_EQ(pwrite(c->log_fd, &h.latency, sizeof(h.latency), SFS_LATENCY_OFFSET), sizeof(h.latency));
}

static void next_of_the_same(void)
{
	struct played c;
	uint32_t log, id, again;

	hello(&c);
	log = c.log;
	use(&c, 'a', &id);
	leave(&c);
	EVENTUALLY(spare(log));
	world_expect(&f, 4096, 0, 4096, 'a');
	for (char byte = 'b'; byte < 'g'; byte++) {
		char data[4096];

		memset(data, '-', sizeof(data));
		CHECK_EQ(pwrite(f.fd, data, sizeof(data), 0), sizeof(data));
		hello(&c);
		CHECK_EQ(c.log, log);
		is_new(&c);
		/* One that stages nothing undoes nothing of others. */
		leave(&c);
		EVENTUALLY(spare(log));
		world_expect(&f, 4096, 0, 4096, '-');
		hello(&c);
		CHECK_EQ(c.log, log);
		is_new(&c);
		use(&c, byte, &again);
		CHECK_EQ(again, id);
		leave(&c);
		EVENTUALLY(spare(log));
		world_expect(&f, 4096, 0, 4096, byte);
	}
}

/* In another process, one that lives on: what it has mapped or open is nobody else's. */
static void still_in_use(bool mapped, bool staging)
{
	uint32_t log, id, other;
	struct played c;
	int fd, status;
	pid_t pid;

	hello(&c);
	log = c.log;
	fd = tiny(&c, &id);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		const int kept = staging ? fd : c.log_fd;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (mapped && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, kept, 0) == MAP_FAILED)
			_exit(1);
		close(c.sock);
		close(c.event);
		close(staging ? c.log_fd : fd);
		if (mapped)
			close(kept);
		for (;;)
			pause();
	}
	usleep(100000);
	close(fd);
	leave(&c);
	if (staging) {
		EVENTUALLY(spare(log));
		hello(&c);
		CHECK_EQ(c.log, log);
		close(tiny(&c, &other));
		CHECK(other != id);
	} else {
		EVENTUALLY(gone(log));
		hello(&c);
		CHECK(c.log != log);
	}
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	log = c.log;
	leave(&c);
	EVENTUALLY(spare(log));
}

static void not_to_others(void)
{
	struct played c;
	uint32_t log;
	int status;
	pid_t pid;

	hello(&c);
	log = c.log;
	leave(&c);
	EVENTUALLY(spare(log));
	if (geteuid() != 0) {
		printf("not root: another user is left out\n");
		return;
	}
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_EQ(setuid(OTHER_USER), 0);
		/* Also where there would be no other log for a moment. */
		for (int i = 0; i < 3 * SFS_SPARE_LOGS_MAX; i++) {
			struct played other;

			hello(&other);
			CHECK(other.log != log);
		}
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(kept(log) || gone(log));
}

static uint32_t world_leases(void)
{
	struct sfs_numbers logs, leases;
	struct sfs_why why = {0};
	uint32_t n;

	CHECK_EQ(sfs_log_list(&w.root, &logs, &leases, &why), 0);
	n = leases.n;
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	return n;
}

/* Many at once: so many are kept, and no more. */
static void bounded(void)
{
	struct played many[3 * SFS_KEPT_LOGS_MAX];
	struct played c;
	uint32_t log;

	for (int i = 0; i < 3 * SFS_KEPT_LOGS_MAX; i++)
		hello(&many[i]);
	for (int i = 0; i < 3 * SFS_KEPT_LOGS_MAX; i++)
		leave(&many[i]);
	EVENTUALLY(world_entries(&w, w.root.log) <= SFS_SPARE_LOGS_MAX + 2 * SFS_KEPT_LOGS_MAX);
	/* Not for long, either: then there are logs alone. */
	for (int i = 0; i < 30 && world_leases() > 0; i++)
		sleep(1);
	CHECK_EQ(world_leases(), 0);
	/* Neither those nor what the dead leave outlive the agent. */
	hello(&c);
	log = c.log;
	leave(&c);
	EVENTUALLY(spare(log));
	agent_stop(&a, SIGKILL);
	CHECK(kept(log));
	agent_start(&a, &w);
	hello(&c);
	CHECK(gone(log));
	leave(&c);
	agent_end(&a);
	CHECK_EQ(world_entries(&w, w.root.log), 0);
}

int main(void)
{
	const struct sfs_agent_config config = {
		.pool_bytes = 64u << 20, .chunk_bytes = 16u << 20, .log_bytes = 64 << 10, .fill_percent = 100};

	world_new(&w);
	f = world_file(&w, "f", 'o', 0);
	agent_start_with(&a, &w, &config);
	chmod(a.dir, 0755);
	chmod(a.sock, 0666);
	next_of_the_same();
	still_in_use(false, false);
	still_in_use(true, false);
	still_in_use(false, true);
	still_in_use(true, true);
	not_to_others();
	bounded();
	close(f.fd);
	world_end(&w);
	return 0;
}
