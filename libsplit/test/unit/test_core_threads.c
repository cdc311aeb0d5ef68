/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads on the core: appenders to one file lose and tear no line, writers of files of their own do not disturb each other, and a
 * reader never sees a byte that nobody wrote, while the log is so small that checkpoints come all the time and a further
 * thread syncs. Not built with the thread sanitizer: the service thread has no thread-local storage for it.
 */
#include "harness.h"
#include "io/io.h"
#include "unit/core_agent.h"

#define APPENDERS 3
#define LINES	  4000
#define LINE	  48

static struct core_agent a = {.slots = 64 + 200, .chunk_bytes = 2 << 20, .chunks_left = 16};
static char shared[400];
static int shared_fd;
static bool stop;

static void *append(void *arg)
{
	const int id = (int)(long)arg;
	char line[LINE];

	for (int i = 0; i < LINES; i++) {
		memset(line, '.', sizeof(line));
		line[snprintf(line, sizeof(line), "%d %d ", id, i)] = '.';
		line[LINE - 1] = '\n';
		CHECK_EQ(sfs_write(shared_fd, line, LINE, -1), LINE);
	}
	return NULL;
}

static void *own_file(void *arg)
{
	uint64_t state = 77 + (uint64_t)(long)arg;
	static uint8_t content[2][1 << 18];
	uint8_t *mine = content[(long)arg], buf[9000];
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/own%ld", a.root, (long)arg);
	fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	CHECK_EQ(sfs_ftruncate(fd, 1 << 18), 0);
	for (int i = 0; i < 5000; i++) {
		const size_t n = 1 + test_below(&state, sizeof(buf)), off = test_below(&state, (1 << 18) - n);

		if (i % 2) {
			test_fill(&state, buf, n);
			memcpy(mine + off, buf, n);
			CHECK_EQ(sfs_write(fd, buf, n, (off_t)off), n);
		} else {
			CHECK_EQ(sfs_read(fd, buf, n, (off_t)off), n);
			CHECK_MEM(buf, mine + off, n);
		}
	}
	CHECK_EQ(sfs_close(fd), 0);
	return NULL;
}

static void *watch(void *arg)
{
	static char buf[LINE * 64];

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		const off_t size = sfs_lseek(shared_fd, 0, SEEK_CUR);
		const off_t at = size > (off_t)sizeof(buf) ? (size - (off_t)sizeof(buf)) / LINE * LINE : 0;
		const ssize_t r = sfs_read(shared_fd, buf, sizeof(buf), at);

		CHECK(r >= 0);
		for (ssize_t i = 0; i + LINE <= r; i += LINE)
			CHECK(buf[i + LINE - 1] == '\n' && buf[i] >= '0' && buf[i] < '0' + APPENDERS);
		CHECK_EQ(sfs_fsync(shared_fd, false), 0);
		usleep(500);
	}
	return NULL;
}

static void count_lines(void)
{
	static bool seen[APPENDERS][LINES];
	char line[LINE];
	int fd = open(shared, O_RDONLY), n = 0;

	CHECK(fd >= 0);
	while (read(fd, line, LINE) == LINE) {
		int id, i;

		CHECK_EQ(sscanf(line, "%d %d", &id, &i), 2);
		CHECK(id >= 0 && id < APPENDERS && i >= 0 && i < LINES && !seen[id][i]);
		seen[id][i] = true;
		n++;
	}
	CHECK_EQ(n, APPENDERS * LINES);
	close(fd);
}

/* A file that is closed is cut off by somebody without the library, and opened while somebody looks at what is known of it. */
static void opened_again(void)
{
	static char buf[100000];
	char path[400];
	struct stat st;
	struct sfs_inode *in;
	int fd;

	snprintf(path, sizeof(path), "%s/again", a.root);
	fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0644);
	CHECK_EQ(sfs_write(fd, buf, sizeof(buf), 0), sizeof(buf));
	CHECK_EQ(sfs_fsync(fd, false), 0);
	CHECK_EQ(sfs_close(fd), 0);
	CHECK_EQ(truncate(path, 4096), 0);
	CHECK_EQ(stat(path, &st), 0);
	in = sfs_inode_ref(st.st_dev, st.st_ino);
	fd = sfs_openat(AT_FDCWD, path, O_RDWR, 0);
	CHECK_EQ(sfs_lseek(fd, 0, SEEK_CUR), 0);
	CHECK_EQ(sfs_read(fd, buf, sizeof(buf), 0), 4096);
	CHECK_EQ(sfs_read(fd, buf, 10, 50000), 0);
	if (in)
		sfs_inode_put(in);
	CHECK_EQ(sfs_close(fd), 0);
}

int main(int argc, char **argv)
{
	pthread_t t[APPENDERS + 3];

	if (core_agent_modes(argc, argv))
		return 0;
	core_agent_start(&a, argv[1]);
	opened_again();
	snprintf(shared, sizeof(shared), "%s/shared", a.root);
	shared_fd = sfs_openat(AT_FDCWD, shared, O_RDWR | O_CREAT | O_APPEND, 0644);
	CHECK(shared_fd >= 0);
	for (int i = 0; i < APPENDERS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, append, (void *)(long)i), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[APPENDERS + i], NULL, own_file, (void *)(long)i), 0);
	CHECK_EQ(pthread_create(&t[APPENDERS + 2], NULL, watch, NULL), 0);
	for (int i = 0; i < APPENDERS + 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	stop = true;
	CHECK_EQ(pthread_join(t[APPENDERS + 2], NULL), 0);
	CHECK_EQ(sfs_close(shared_fd), 0);
	count_lines();
	core_agent_remove(&a);
	return 0;
}
