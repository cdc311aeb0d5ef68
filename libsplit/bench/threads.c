/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a second thread brings. One thread and two do the same work in turns, in one process; the ratio of their throughput within a turn is
 * taken, and its median shown: 2 is what two processors can do, and what copies of memory alone reach says how much of it this
 * machine has. Times are wall-clock time, so nothing else should run.
 *
 *   threads LIBSPLIT SPLITFS DIR   DIR: where a volume may be made
 */
#include <emmintrin.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

/*
 * A turn is to be long beside what the kernel needs to give each thread a processor of its own, milliseconds; all appends together are to fit
 * into the pool.
 */
enum { TURNS = 15, APPENDS = 5000, CALLS = 100000, SMALL_CALLS = 1000000, BLOCK = 4096, BLOCKS = 4096, PIECE = 1 << 20 };

struct thread {
	int fd, number, calls;
	char *memory, *buffer;
	void (*work)(struct thread *);
	double end; /* when it was done */
};

static struct thread threads[2];
static double from; /* when the turn began */
static pthread_barrier_t begin;

/* Each thread has its half of a file. */
static off_t place(const struct thread *t, int i)
{
	return (off_t)(t->number * (BLOCKS / 2) + i % (BLOCKS / 2)) * BLOCK;
}

static void copies(struct thread *t)
{
	for (int i = 0; i < t->calls; i++) {
		char *dst = t->memory + place(t, i);

		for (int k = 0; k < BLOCK; k += 16)
			_mm_stream_si128((__m128i *)(dst + k), _mm_load_si128((const __m128i *)(t->buffer + k)));
	}
}

static void copies_out(struct thread *t)
{
	for (int i = 0; i < t->calls; i++) {
		memcpy(t->buffer, t->memory + place(t, i), BLOCK);
		__asm__ volatile("" : : "r"(t->buffer) : "memory");
	}
}

static void appends(struct thread *t)
{
	for (int i = 0; i < t->calls; i++)
		if (write(t->fd, t->buffer, BLOCK) != BLOCK)
			fail("write");
}

static void overwrites(struct thread *t)
{
	for (int i = 0; i < t->calls; i++)
		if (pwrite(t->fd, t->buffer, BLOCK, place(t, i)) != BLOCK)
			fail("pwrite");
}

static void reads(struct thread *t)
{
	for (int i = 0; i < t->calls; i++)
		if (pread(t->fd, t->buffer, BLOCK, place(t, i)) != BLOCK)
			fail("pread");
}

/* Little to copy: what is seen is how the threads are kept apart. */
static void small_reads(struct thread *t)
{
	for (int i = 0; i < t->calls; i++)
		if (pread(t->fd, t->buffer, 64, place(t, i)) != 64)
			fail("pread");
}

static bool reads_done;

/* What readers of the file would wait for. */
static void long_overwrites(struct thread *t)
{
	while (!__atomic_load_n(&reads_done, __ATOMIC_RELAXED))
		if (pwrite(t->fd, t->buffer, PIECE, (off_t)BLOCKS / 2 * BLOCK) != PIECE)
			fail("pwrite");
}

static void reads_beside(struct thread *t)
{
	reads(t);
	__atomic_store_n(&reads_done, true, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
	struct thread *t = arg;

	pthread_barrier_wait(&begin);
	t->work(t);
	t->end = now_ns(CLOCK_MONOTONIC);
	return NULL;
}

/* Nanoseconds that a thread, or two, take from the moment all are there to when the last is done. second: NULL for one. */
static double turn(void (*first)(struct thread *), void (*second)(struct thread *), int calls)
{
	const unsigned n = second ? 2 : 1;
	pthread_t id[2];
	double to = 0;

	if (pthread_barrier_init(&begin, NULL, n + 1))
		fail("pthread_barrier_init");
	for (unsigned i = 0; i < n; i++) {
		threads[i].work = i ? second : first;
		threads[i].calls = calls;
		errno = pthread_create(&id[i], NULL, run, &threads[i]);
		if (errno)
			fail("pthread_create");
	}
	from = now_ns(CLOCK_MONOTONIC);
	pthread_barrier_wait(&begin);
	for (unsigned i = 0; i < n; i++) {
		pthread_join(id[i], NULL);
		to = threads[i].end > to ? threads[i].end : to;
	}
	pthread_barrier_destroy(&begin);
	return to - from;
}

static void show(const char *what, double *one, double *ratio)
{
	printf("  %-34s %8.0f", what, median(one, TURNS));
	printf(" %9.2f", median(ratio, TURNS));
	printf("   %.2f..%.2f\n", ratio[TURNS / 4], ratio[3 * TURNS / 4]);
	fflush(stdout);
}

/* Reads while the other thread writes, beside reads alone. */
static void measure_beside(const char *what, int calls)
{
	static double one[TURNS], ratio[TURNS];

	for (int i = 0; i < TURNS; i++) {
		one[i] = turn(reads, NULL, calls) / calls;
		reads_done = false;
		turn(reads_beside, long_overwrites, calls);
		ratio[i] = one[i] * calls / (threads[0].end - from);
	}
	show(what, one, ratio);
}

static void measure(const char *what, void (*work)(struct thread *), int calls)
{
	static double one[TURNS], ratio[TURNS];

	turn(work, work, calls); /* warms up, and gives both threads' files what they grow by */
	for (int i = 0; i < TURNS; i++) {
		one[i] = turn(work, NULL, calls) / calls;
		ratio[i] = 2 * one[i] * calls / turn(work, work, calls);
	}
	show(what, one, ratio);
}

static int open_at(const char *dir, const char *name, int flags)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0644);
	if (fd < 0)
		fail(path);
	return fd;
}

static void close_and_remove(const char *dir, const char *name, int fd)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (close(fd) || unlink(path))
		fail(path);
}

static int measured(const char *name, const char *dir)
{
	int a, b;

	printf("%s\n", name);
	for (int i = 0; i < 2; i++) {
		threads[i].number = i;
		threads[i].buffer = aligned_alloc(BLOCK, PIECE);
		if (!threads[i].buffer)
			fail("malloc");
		memset(threads[i].buffer, 'x', PIECE);
	}
	if (!strcmp(name, "memory")) {
		char *memory = mmap(NULL, (size_t)BLOCKS * BLOCK, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (memory == MAP_FAILED)
			fail("mmap");
		threads[0].memory = threads[1].memory = memory;
		measure("non-temporal copies into it", copies, CALLS);
		measure("memcpy from it", copies_out, CALLS);
		return 0;
	}
	threads[0].fd = a = open_at(dir, "a", O_APPEND);
	threads[1].fd = b = open_at(dir, "b", O_APPEND);
	measure("append, each a file", appends, APPENDS);
	close_and_remove(dir, "b", b);
	close_and_remove(dir, "a", a);
	threads[0].fd = threads[1].fd = a = open_at(dir, "a", O_APPEND);
	measure("append, the same file", appends, APPENDS);
	close_and_remove(dir, "a", a);
	threads[0].fd = threads[1].fd = a = open_at(dir, "a", 0);
	for (int i = 0; i < BLOCKS; i++)
		if (pwrite(a, threads[0].buffer, BLOCK, (off_t)i * BLOCK) != BLOCK)
			fail("pwrite");
	if (fsync(a))
		fail("fsync");
	measure("overwrite, the same file", overwrites, CALLS);
	measure("read, the same file", reads, CALLS);
	measure("read of 64 bytes, the same file", small_reads, SMALL_CALLS);
	measure_beside("read beside writes of 1 MiB", CALLS / 5);
	close_and_remove(dir, "a", a);
	return 0;
}

static void spawn(char *const argv[])
{
	char *const envp[] = {"PATH=/usr/bin:/bin", "SPLITFS_VISIBILITY_MS=600000", NULL};
	int status;
	pid_t pid;

	errno = posix_spawn(&pid, argv[0], NULL, NULL, argv, envp);
	if (errno || waitpid(pid, &status, 0) < 0)
		fail(argv[0]);
	if (status != 0) {
		fprintf(stderr, "threads: %s failed\n", argv[0]);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	char self[4096];
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *const modes[] = {"posix", "sync", "strict"};

	if (argc == 4 && !strcmp(argv[1], "--measure"))
		return measured(argv[2], argv[3]);
	if (argc != 4 || n <= 0) {
		fprintf(stderr, "Usage: threads LIBSPLIT SPLITFS DIR   (DIR: where a volume may be made)\n");
		return 2;
	}
	self[n] = 0;
	printf("%-36s %8s %9s   quarters\n", "4 KiB", "ns, one", "two: x");
	fflush(stdout);
	spawn((char *[]){self, "--measure", "memory", argv[3], NULL});
	spawn((char *[]){self, "--measure", "kernel", argv[3], NULL});
	for (int i = 0; i < 3; i++)
		spawn((char *[]){argv[2], "run", "--mode", modes[i], "--dir", argv[3], "--pool-bytes", "2G", "--library",
				 argv[1], "--", self, "--measure", modes[i], argv[3], NULL});
	return 0;
}
