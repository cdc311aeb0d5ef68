/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pm_copy and pm_zero leave exactly the bytes that libpmem leaves, at every small length, alignment and around the switch. Where
 * libpmem is not there for the target, the C library's functions must do. pm_copy_crc leaves the same, and its sum is that of what it
 * left, whatever happens to the source meanwhile.
 */
#include "pm/pm.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "harness.h"

#ifdef HAVE_LIBPMEM
#include <libpmem.h>
#else
#define pmem_memcpy(dst, src, n, flags)	 memcpy(dst, src, n)
#define pmem_memset(dst, byte, n, flags) memset(dst, byte, n)
#define pmem_drain()			 ((void)0)
#endif

#define SIZE  16384
#define GUARD 256

static unsigned char src[SIZE + 128];
static unsigned char *ours, *theirs;

static void one(uint64_t *rnd, size_t n)
{
	size_t to = GUARD + test_below(rnd, 128), from = test_below(rnd, 128);
	uint64_t value = test_random(rnd);
	uint32_t crc = (uint32_t)test_random(rnd);

	pm_copy(ours + to, src + from, n);
	pmem_memcpy(theirs + to, src + from, n, PMEM_F_MEM_NODRAIN);
	CHECK_MEM(ours, theirs, SIZE + 2 * GUARD);

	to = GUARD + test_below(rnd, 128), from = test_below(rnd, 128);
	CHECK_EQ(pm_copy_crc(crc, ours + to, src + from, n), crc32c_table(crc, src + from, n));
	pmem_memcpy(theirs + to, src + from, n, PMEM_F_MEM_NODRAIN);
	CHECK_MEM(ours, theirs, SIZE + 2 * GUARD);

	to = GUARD + test_below(rnd, 128);
	pm_zero(ours + to, n / 2);
	pmem_memset(theirs + to, 0, n / 2, PMEM_F_MEM_NODRAIN);
	pm_fence();
	pmem_drain();
	CHECK_MEM(ours, theirs, SIZE + 2 * GUARD);

	to = GUARD + 64 * test_below(rnd, 16);
	pm_copy_line(ours + to, src + from);
	pmem_memcpy(theirs + to, src + from, 64, PMEM_F_MEM_TEMPORAL);
	to = GUARD + 8 * test_below(rnd, 16);
	pm_store64((uint64_t *)(ours + to), value);
	pmem_memcpy(theirs + to, &value, 8, PMEM_F_MEM_NODRAIN);
	to = GUARD + test_below(rnd, 128);
	pm_store(ours + to, src + from, n / 3);
	pmem_memcpy(theirs + to, src + from, n / 3, PMEM_F_MEM_NOFLUSH);
	pm_flush(ours + to, n / 3);
	pm_fence();
	CHECK_MEM(ours, theirs, SIZE + 2 * GUARD);
}

static bool stop;

static void *change_source(void *arg)
{
	uint64_t rnd = 1;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		__atomic_store_n((uint64_t *)arg + test_below(&rnd, SIZE / 8), test_random(&rnd), __ATOMIC_RELAXED);
	return NULL;
}

/* Until the source was seen to change under a copy often enough. */
static void changing_source(void)
{
	static uint64_t source[SIZE / 8];
	pthread_t thread;
	int changed = 0;

	CHECK_EQ(pthread_create(&thread, NULL, change_source, source), 0);
	while (changed < 100) {
		const uint32_t before = crc32c(0, source, SIZE), crc = pm_copy_crc(0, ours, source, SIZE);

		CHECK_EQ(crc, crc32c(0, ours, SIZE));
		changed += crc != before && crc != crc32c(0, source, SIZE);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	memcpy(theirs, ours, SIZE);
	stop = false;
}

/* The least of some tries: what else the machine does only adds to it. */
static uint64_t flush_ns(const void *p, size_t n)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 20; i++) {
		struct timespec a, b;
		uint64_t ns;

		clock_gettime(CLOCK_MONOTONIC, &a);
		pm_flush(p, n);
		pm_fence();
		clock_gettime(CLOCK_MONOTONIC, &b);
		ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
		least = ns < least ? ns : least;
	}
	return least;
}

/*
 * Lines are written back unless every volume that has joined is on memory whose platform keeps the caches; one without is the end of
 * that. 16384 write-backs take many times as long as none.
 */
static void caches_kept(uint64_t *rnd)
{
	const size_t n = 1 << 20;
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint64_t unknown, kept, lost, again;

	CHECK(p != MAP_FAILED);
	unknown = flush_ns(p, n);
	pm_join(true);
	kept = flush_ns(p, n);
	for (size_t i = 0; i < 1200; i++)
		one(rnd, i);
	pm_join(true);
	CHECK(flush_ns(p, n) < unknown / 4);
	pm_join(false);
	lost = flush_ns(p, n);
	pm_join(true);
	again = flush_ns(p, n);
	if (kept >= unknown / 4 || lost < kept * 4 || again < kept * 4)
		FAIL("a flush took %" PRIu64 " ns, with caches that are kept %" PRIu64 ", without %" PRIu64 " and %" PRIu64,
		     unknown, kept, lost, again);
	munmap(p, n);
}

static void all(uint64_t *rnd)
{
	for (size_t n = 0; n < 1200; n++)
		one(rnd, n);
	for (int i = 0; i < 200; i++)
		one(rnd, test_below(rnd, SIZE - 128));
	changing_source();
}

int main(void)
{
	uint64_t rnd = test_seed(3);
	uint32_t cpu = sfs_cpu();

	ours = mmap(NULL, SIZE + 2 * GUARD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	theirs = mmap(NULL, SIZE + 2 * GUARD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(ours != MAP_FAILED && theirs != MAP_FAILED);
	test_fill(&rnd, src, sizeof(src));
	for (int pass = 0; pass < 3; pass++) {
		pid_t pid;
		int status;

		/* clwb where there is one, then clflushopt, then clflush; on arm64 dc cvap where there is one, then dc cvac. */
		if (pass == 1 && !(cpu & SFS_CPU_CLFLUSHOPT))
			continue;
		/* In a process of its own: the first who writes lines back chooses. */
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			sfs_cpu_cache = pass == 0 ? cpu : pass == 1 ? SFS_CPU_KNOWN | SFS_CPU_CLFLUSHOPT : SFS_CPU_KNOWN;
			all(&rnd);
			exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		/* An emulator may say that it has instructions which it refuses: test/arm64. */
		if (WIFSIGNALED(status))
			raise(WTERMSIG(status));
		CHECK(status == 0);
	}
	caches_kept(&rnd);
	return 0;
}
