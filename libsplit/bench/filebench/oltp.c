/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The personality oltp: a process of 200 threads (200 processes there) that read 2 KiB anywhere in the data files and compute, one of 10
 * database writers that write a hundred such pages after each 1,000 reads, and one that writes 256 KiB of the log after
 * each 3,200. filebench's writers use aio and wait for it; here they write, with O_DSYNC as there.
 */
#include "filebench.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../timing.h"

#define READERS	    200u
#define WRITERS	    10u
#define PAGE	    (2 * KIB)
#define DATA_BYTES  (10u << 20) /* of each data file, and of the log */
#define LOG_IO	    (256 * KIB)
#define PAGES	    100
#define READ_LOOPS  200000u /* of computing */
#define WRITE_LOOPS 10000u
#define READS_PAGES 1000
#define READS_LOG   3200
#define AHEAD_PAGES 2000
#define AHEAD_LOG   (READS_LOG + 1000)
#define FILES_MAX   1000u

/* Readers post, and wait where they are `high` ahead of the writers, who take `unit` at a time. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t filled, room;
	int64_t posted, unit, high;
	bool over;
};

/* Of all three processes. */
static struct shared {
	struct gate pages, log;
	_Atomic int64_t left; /* reads */
	_Atomic uint64_t ops;
	unsigned files;
} * shared;

static int fds[FILES_MAX]; /* of the process, for the data files */

static void gate_begin(struct gate *g, int64_t unit, int64_t high)
{
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;

	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&g->lock, &ma);
	pthread_condattr_init(&ca);
	pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&g->filled, &ca);
	pthread_cond_init(&g->room, &ca);
	g->unit = unit;
	g->high = high;
}

static void gate_post(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	while (g->posted >= g->high)
		pthread_cond_wait(&g->room, &g->lock);
	if (++g->posted >= g->unit)
		pthread_cond_signal(&g->filled);
	pthread_mutex_unlock(&g->lock);
}

/* Waits for a unit; false: there will be no more. */
static bool gate_take(struct gate *g)
{
	bool taken;

	pthread_mutex_lock(&g->lock);
	while (g->posted < g->unit && !g->over)
		pthread_cond_wait(&g->filled, &g->lock);
	taken = g->posted >= g->unit;
	if (taken)
		g->posted -= g->unit;
	pthread_cond_broadcast(&g->room);
	pthread_mutex_unlock(&g->lock);
	return taken;
}

static void gate_end(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	g->over = true;
	pthread_cond_broadcast(&g->filled);
	pthread_mutex_unlock(&g->lock);
}

static void compute(unsigned loops)
{
	volatile char c = 0;

	while (loops-- > 0)
		c = 1;
	(void)c;
}

static int open_data(unsigned i, int flags)
{
	char path[PATH_SIZE];
	int fd;

	snprintf(path, sizeof(path), "data%u", i);
	fd = open(path, flags, 0644);
	if (fd < 0)
		fail(path);
	return fd;
}

static int open_log(int flags)
{
	const int fd = open("log", flags, 0644);

	if (fd < 0)
		fail("log");
	return fd;
}

/* One file after the other, anywhere in it. */
static void page(struct worker *w, unsigned *next, bool write_it)
{
	const off_t at = (off_t)(random_below(w, DATA_BYTES / PAGE) * PAGE);
	const int fd = fds[(*next)++ % shared->files];

	if ((write_it ? pwrite(fd, w->buf, PAGE, at) : pread(fd, w->buf, PAGE, at)) != (ssize_t)PAGE)
		fail(write_it ? "pwrite" : "pread");
	w->ops++;
}

static void *reader(void *arg)
{
	struct worker *w = arg;
	unsigned next = (unsigned)random_below(w, shared->files);

	while (shared->left-- > 0) {
		page(w, &next, false);
		compute(READ_LOOPS);
		gate_post(&shared->log);
		gate_post(&shared->pages);
	}
	shared->ops += w->ops;
	return NULL;
}

static void *writer(void *arg)
{
	struct worker *w = arg;
	unsigned next = (unsigned)random_below(w, shared->files);

	while (gate_take(&shared->pages)) {
		for (int i = 0; i < PAGES; i++)
			page(w, &next, true);
		compute(WRITE_LOOPS);
	}
	shared->ops += w->ops;
	return NULL;
}

static void *log_writer(void *arg)
{
	struct worker *w = arg;
	const int fd = open_log(O_WRONLY | O_DSYNC);

	while (gate_take(&shared->log)) {
		if (pwrite(fd, w->buf, LOG_IO, (off_t)(random_below(w, DATA_BYTES / LOG_IO) * LOG_IO)) != (ssize_t)LOG_IO)
			fail("log");
		w->ops++;
	}
	shared->ops += w->ops;
	close(fd);
	return NULL;
}

/* A process of such threads, with the data files open. */
static pid_t process(void *(*work)(void *), unsigned threads, int flags)
{
	const pid_t child = fork();
	struct worker w[READERS] = {0};
	pthread_t t[READERS];

	if (child < 0)
		fail("fork");
	if (child > 0)
		return child;
	for (unsigned i = 0; i < shared->files; i++)
		fds[i] = open_data(i, flags);
	for (unsigned i = 0; i < threads; i++) {
		w[i].random = 0x2545f4914f6cdd1du * (i + 1);
		w[i].buf = calloc(1, LOG_IO);
		errno = w[i].buf ? pthread_create(&t[i], NULL, work, &w[i]) : ENOMEM;
		if (errno)
			fail("pthread_create");
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	_exit(0);
}

static void wait_for(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) < 0 || status != 0)
		fail("a process of oltp");
}

static void make_files(unsigned files)
{
	struct worker w = {.buf = calloc(1, IO_SIZE)};

	if (!w.buf)
		fail("memory");
	for (unsigned i = 0; i <= files; i++) {
		const int fd = i < files ? open_data(i, O_WRONLY | O_CREAT) : open_log(O_WRONLY | O_CREAT);

		write_whole(&w, fd, DATA_BYTES);
		close(fd);
	}
	free(w.buf);
}

uint64_t oltp(unsigned files, uint64_t reads, bool make)
{
	pid_t readers, writers, log;

	if (files > FILES_MAX)
		files = FILES_MAX;
	if (make) {
		make_files(files);
		return 0;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	gate_begin(&shared->pages, READS_PAGES, AHEAD_PAGES);
	gate_begin(&shared->log, READS_LOG, AHEAD_LOG);
	shared->left = (int64_t)reads;
	shared->files = files;
	log = process(log_writer, 1, O_RDONLY);
	writers = process(writer, WRITERS, O_WRONLY | O_DSYNC);
	readers = process(reader, READERS, O_RDONLY);
	wait_for(readers);
	gate_end(&shared->pages);
	gate_end(&shared->log);
	wait_for(writers);
	wait_for(log);
	return shared->ops;
}
