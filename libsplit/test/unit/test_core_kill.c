/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGKILL at any moment, with threads. A child runs writers on the core: appenders of numbered lines to a shared file and to files
 * of their own, and writers of versioned slots; each notes in shared memory what it is about to do and what was acknowledged. A
 * further thread syncs. The log and the staging files are so small that checkpoints and recycling happen all the time. The
 * parent kills the child, replays the log over the files, and looks for every acknowledged byte.
 */
#include "harness.h"
#include "unit/core_agent.h"
#include "unit/core_log.h"

#include <signal.h>
#include <sys/wait.h>

#define APPENDERS 2
#define WRITERS	  2
#define LINE	  40
#define SLOTS	  64
#define SLOT	  1500
#define ROUNDS	  25

struct shared {
	uint32_t appended[APPENDERS];	/* lines acknowledged */
	uint32_t asked[WRITERS][SLOTS]; /* versions: about to be written, and acknowledged */
	uint32_t written[WRITERS][SLOTS];
	uint32_t nospace;
	char root[256];
	char agents[300];
};

static struct shared *sh;
static struct core_agent agent;
static int shared_fd;

static void *append(void *arg)
{
	const int id = (int)(long)arg;
	char line[LINE + 1];

	for (uint32_t i = 0;; i++) {
		ssize_t r;

		snprintf(line, sizeof(line), "%d %-*u\n", id, LINE - 3, i);
		r = sfs_write(shared_fd, line, LINE, -1);
		if (r == -ENOSPC) {
			__atomic_add_fetch(&sh->nospace, 1, __ATOMIC_RELAXED);
			i--;
			continue;
		}
		CHECK_EQ(r, LINE);
		__atomic_store_n(&sh->appended[id], i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void *overwrite(void *arg)
{
	const int id = (int)(long)arg;
	uint64_t state = 5 + (uint64_t)id;
	uint32_t slot[SLOT / 4];
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/slots%d", agent.root, id);
	fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	for (uint32_t n = 1;; n++) {
		const uint64_t at = test_below(&state, SLOTS);
		ssize_t r;

		for (unsigned i = 0; i < SLOT / 4; i++)
			slot[i] = n;
		__atomic_store_n(&sh->asked[id][at], n, __ATOMIC_RELEASE);
		r = sfs_write(fd, slot, SLOT, (off_t)(at * SLOT));
		if (r == -ENOSPC) {
			__atomic_add_fetch(&sh->nospace, 1, __ATOMIC_RELAXED);
			__atomic_store_n(&sh->asked[id][at], sh->written[id][at], __ATOMIC_RELEASE);
			continue;
		}
		CHECK_EQ(r, SLOT);
		__atomic_store_n(&sh->written[id][at], n, __ATOMIC_RELEASE);
		if (test_below(&state, 50) == 0) {
			CHECK_EQ(sfs_read(fd, slot, SLOT, (off_t)(at * SLOT)), SLOT);
			for (unsigned i = 0; i < SLOT / 4; i++)
				CHECK_EQ(slot[i], n);
		}
		if (test_below(&state, 200) == 0) {
			CHECK_EQ(sfs_close(fd), 0);
			fd = sfs_openat(AT_FDCWD, path, O_RDWR, 0);
			CHECK(fd >= 0);
		}
	}
	return NULL;
}

static void child(const char *mode)
{
	pthread_t t;
	char path[400];

	core_agent_start(&agent, mode);
	memcpy(sh->agents, agent.agents, sizeof(sh->agents));
	memcpy(sh->root, agent.root, sizeof(sh->root));
	snprintf(path, sizeof(path), "%s/shared", agent.root);
	shared_fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND, 0644);
	CHECK(shared_fd >= 0);
	for (long i = 0; i < APPENDERS; i++)
		CHECK_EQ(pthread_create(&t, NULL, append, (void *)i), 0);
	for (long i = 0; i < WRITERS; i++)
		CHECK_EQ(pthread_create(&t, NULL, overwrite, (void *)i), 0);
	for (int i = 0;; i++) {
		const int r = i % 3 ? sfs_fsync(shared_fd, false) : (sfs_all_true(), 0);

		CHECK_EQ(r, 0);
		usleep(300);
	}
}

/* ---- recovery, in a few lines */

static const struct sfs_log_header *head;

static void *map(const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	void *p;

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	p = mmap(NULL, (size_t)st.st_size + 1, PROT_READ, MAP_SHARED, fd, 0); /* a file may be empty */
	CHECK(p != MAP_FAILED);
	close(fd);
	*len = (size_t)st.st_size;
	return p;
}

static const uint8_t *chunks[4096]; /* of this round */

static const uint8_t *staging(uint32_t id)
{
	char path[700];
	size_t len;

	CHECK(id > 0 && id < sizeof(chunks) / sizeof(chunks[0]));
	if (!chunks[id]) {
		snprintf(path, sizeof(path), "%s/chunk-%u", sh->agents, id);
		chunks[id] = map(path, &len);
		CHECK_EQ(len, agent.chunk_bytes);
	}
	return chunks[id];
}

static void apply(void *ctx, const struct sfs_record *r, const uint8_t *data)
{
	const int fd = *(int *)ctx;
	struct stat st;

	CHECK(r->stage_off + r->len <= agent.chunk_bytes);
	CHECK_EQ(pwrite(fd, data, r->len, (off_t)r->off), r->len);
	CHECK(fstat(fd, &st) == 0);
	if ((uint64_t)st.st_size < r->size)
		CHECK_EQ(ftruncate(fd, (off_t)r->size), 0);
}

/* Returns the number of records that were applied. */
static unsigned replay(const char *file)
{
	char path[700];
	struct stat st;
	unsigned n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", sh->root, file);
	fd = open(path, O_RDWR | O_CREAT, 0644); /* a thread may have been killed before it made its file */
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	n = core_log_each(head, st.st_ino, staging, apply, &fd);
	close(fd);
	return n;
}

static void check_lines(void)
{
	uint32_t next[APPENDERS] = {0};
	char path[700];
	size_t len;
	char *p;

	snprintf(path, sizeof(path), "%s/shared", sh->root);
	p = map(path, &len);
	CHECK_EQ(len % LINE, 0);
	for (size_t at = 0; at < len; at += LINE) {
		char line[LINE];
		unsigned id, n;

		/* A line by itself: sscanf() measures the whole string first, which the file is not. */
		memcpy(line, p + at, LINE);
		if (line[LINE - 1] != '\n' || (line[LINE - 1] = 0, sscanf(line, "%u %u", &id, &n)) != 2 || id >= APPENDERS)
			FAIL("line %zu of the shared file is torn", at / LINE);
		CHECK_EQ(n, next[id]);
		next[id]++;
	}
	for (int i = 0; i < APPENDERS; i++)
		if (next[i] < sh->appended[i] || next[i] > sh->appended[i] + 1)
			FAIL("appender %d: %u lines, %u were acknowledged", i, next[i], sh->appended[i]);
	munmap(p, len + 1);
}

static void check_slots(int id, bool strict)
{
	char path[700];
	uint32_t *p;
	size_t len;

	snprintf(path, sizeof(path), "%s/slots%d", sh->root, id);
	p = map(path, &len);
	for (unsigned i = 0; i < SLOTS; i++) {
		const uint32_t acked = sh->written[id][i], asked = sh->asked[id][i];
		const uint32_t *slot = p + (size_t)i * (SLOT / 4);

		if (asked == 0 || (acked == 0 && ((size_t)i + 1) * SLOT > len))
			continue;
		CHECK((i + 1ul) * SLOT <= len);
		for (unsigned k = 0; k < SLOT / 4; k++) {
			if (slot[k] != acked && slot[k] != asked)
				FAIL("writer %d: word %u of slot %u has version %u, %u was acknowledged, %u asked for", id, k,
				     i, slot[k], acked, asked);
			if (strict && slot[k] != slot[0])
				FAIL("writer %d: slot %u is torn", id, i);
		}
	}
	munmap(p, len + 1);
}

static unsigned round_of(const char *mode, unsigned us)
{
	char path[700], cmd[700];
	unsigned n;
	size_t len;
	pid_t pid;
	int status;

	memset(sh, 0, sizeof(*sh));
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		child(mode);
	while (!sh->written[WRITERS - 1][0] && waitpid(pid, &status, WNOHANG) == 0)
		usleep(1000);
	usleep(us);
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	snprintf(path, sizeof(path), "%s/log-1", sh->agents);
	head = map(path, &len);
	n = replay("shared");
	for (int i = 0; i < WRITERS; i++) {
		snprintf(cmd, sizeof(cmd), "slots%d", i);
		n += replay(cmd);
	}
	check_lines();
	for (int i = 0; i < WRITERS; i++)
		check_slots(i, strcmp(mode, "strict") == 0);
	munmap((void *)head, len + 1);
	for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++)
		if (chunks[i])
			munmap((void *)chunks[i], agent.chunk_bytes + 1);
	memset(chunks, 0, sizeof(chunks));
	snprintf(cmd, sizeof(cmd), "rm -r '%s'", sh->root);
	CHECK_EQ(system(cmd), 0);
	return n;
}

int main(void)
{
	static const char *const modes[] = {"posix", "sync", "strict"};
	uint64_t state = test_seed(20261121);
	unsigned replayed = 0;

	agent = (struct core_agent){.slots = 64 + 200, .chunk_bytes = 512 << 10, .chunks_left = 8};
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(sh != MAP_FAILED);
	for (int m = 0; m < 3; m++)
		for (int i = 0; i < ROUNDS; i++)
			replayed += round_of(modes[m], (unsigned)test_below(&state, 100000));
	CHECK(replayed > 3 * ROUNDS); /* otherwise nothing was in the log when the child was killed */
	return 0;
}
