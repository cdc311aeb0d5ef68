/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client stored to its log and its staging file is found whenever recovery looks, also at the moment in which the kernel writes the
 * page back and drops it. (On tmpfs, where it never does, this shows less.)
 */
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/holes.h"
#include "world.h"

#define BYTES	(1u << 20)
#define SECONDS 4

static int fd;
static volatile off_t stored_at;
static volatile int round_; /* odd: something is stored */
static volatile bool over;

/* Stored, written back, dropped; and all over again. */
static void *store(void *arg)
{
	uint32_t seed = 1;

	for (; !over; round_++) {
		char *p;

		CHECK_EQ(ftruncate(fd, 0), 0);
		CHECK_EQ(fallocate(fd, 0, 0, BYTES), 0);
		p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(p != MAP_FAILED);
		CHECK_EQ(madvise(p, BYTES, MADV_RANDOM), 0);
		seed = seed * 1103515245 + 12345;
		stored_at = (off_t)((seed >> 16) % (BYTES / SFS_BLOCK)) * SFS_BLOCK;
		memset(p + stored_at, 'x', 64);
		munmap(p, BYTES);
		__atomic_add_fetch(&round_, 1, __ATOMIC_SEQ_CST);
		CHECK_EQ(sync_file_range(fd, 0, 0,
					 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER),
			 0);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		usleep(20);
	}
	return arg;
}

int main(void)
{
	struct timespec start, now;
	unsigned long looks = 0;
	pthread_t thread;
	struct world w;

	world_new(&w);
	fd = openat(w.root.fd, "stored", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	CHECK_EQ(pthread_create(&thread, NULL, store, NULL), 0);
	do {
		const int r = __atomic_load_n(&round_, __ATOMIC_SEQ_CST);
		const off_t want = stored_at;
		off_t data, hole;

		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!(r & 1))
			continue;
		data = sfs_seek_data(fd, 0);
		hole = sfs_seek_hole(fd, want);
		if (__atomic_load_n(&round_, __ATOMIC_SEQ_CST) != r)
			continue;
		looks++;
		CHECK_EQ(data, want);
		CHECK(hole > want);
	} while (now.tv_sec - start.tv_sec < SECONDS);
	over = true;
	pthread_join(thread, NULL);
	CHECK(looks > 100);
	close(fd);
	world_end(&w);
	return 0;
}
