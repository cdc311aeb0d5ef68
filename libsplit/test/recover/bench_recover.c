/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long recovery takes, and how much memory: a log full of small appends that nobody has relinked, as a log writer leaves it
 * that dies before its first checkpoint. Does it for a quarter of the records and for all, prints a line for each, and fails when a
 * byte is wrong, when it takes more than 64 MiB, or when a record of all takes a processor more than twice as long as one of the
 * quarter: recovery is linear.
 *
 *   bench_recover [RECORDS [FILES [BYTES]]]     default: 2000000 records of 64 bytes for one file
 *
 * TEST_VOLUME names the directory to work in (default /dev/shm).
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "world.h"

#define MEMORY_MAX (64l << 10) /* KiB */
#define TRIES	   3
#define MEASURABLE 0.1 /* seconds; what takes less has no ratio */

static uint32_t records, nfiles = 1, bytes = 64;

/* Byte i of what was appended to a file. */
static unsigned char content(uint32_t file, uint64_t i)
{
	return (unsigned char)((i * 0x9e3779b97f4a7c15ull >> 40) + file);
}

static void build(struct world *w, struct world_file *files)
{
	const uint64_t room = (uint64_t)(records / nfiles + 1) * bytes,
		       per_file = (room + SFS_BLOCK - 1) & -(uint64_t)SFS_BLOCK;
	const uint64_t chunk = (per_file * nfiles + WORLD_CHUNK - 1) & -(uint64_t)WORLD_CHUNK;
	unsigned char *data = malloc(bytes), *stage;
	uint32_t seed, id = 900;
	struct sfs_record *rec;
	struct sfs_why why = {0};
	struct world_log l;

	world_log(w, &l, 1, records);
	if (sfs_chunk_create(&w->root, id, chunk, &why))
		FAIL("%s", why.text);
	CHECK_EQ(sfs_lease_add_chunk(&l.lease, id), 0);
	l.chunk = id;
	close(l.chunk_fd);
	l.chunk_fd = sfs_chunk_open(&w->root, id);
	seed = sfs_log_seed(w->root.uuid, l.id);
	stage = mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_SHARED, l.chunk_fd, 0);
	rec = mmap(NULL, SFS_LOG_RECORDS_OFFSET + (uint64_t)records * sizeof(*rec), PROT_READ | PROT_WRITE, MAP_SHARED, l.fd,
		   0);
	CHECK(stage != MAP_FAILED && rec != MAP_FAILED && data);
	rec += SFS_LOG_RECORDS_OFFSET / sizeof(*rec);
	for (uint32_t i = 0; i < nfiles; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%u", i);
		files[i] = world_file(w, name, 0, 0);
		world_allow(&l, &files[i]);
	}
	for (uint32_t i = 0; i < records; i++) {
		const uint32_t f = i % nfiles;
		const uint64_t off = (uint64_t)(i / nfiles) * bytes;

		for (uint32_t k = 0; k < bytes; k++)
			data[k] = content(f, off + k);
		rec[i] = world_record(&l, &files[f], off, bytes, f * per_file + off, off + bytes);
		memcpy(stage + rec[i].stage_off, data, bytes);
		rec[i].flags |= bytes <= 1024 ? SFS_REC_DATA_CRC : 0;
		rec[i].data_crc = bytes <= 1024 ? crc32c(0, data, bytes) : 0;
		rec[i].seq = l.epoch << 32 | i;
		rec[i].crc = crc32c(seed, (char *)&rec[i] + 4, sizeof(rec[i]) - 4);
	}
	munmap(stage, chunk);
	munmap(rec - SFS_LOG_RECORDS_OFFSET / sizeof(*rec), SFS_LOG_RECORDS_OFFSET + (uint64_t)records * sizeof(*rec));
	free(data);
	world_log_close(&l);
}

static void check(const struct world_file *files)
{
	unsigned char buf[65536];

	for (uint32_t f = 0; f < nfiles; f++) {
		const uint64_t size = (uint64_t)((records - f + nfiles - 1) / nfiles) * bytes;
		uint64_t at = 0;
		ssize_t n;

		while ((n = pread(files[f].fd, buf, sizeof(buf), (off_t)at)) > 0)
			for (ssize_t i = 0; i < n; i++, at++)
				if (buf[i] != content(f, at))
					FAIL("file %u, byte %llu is wrong", f, (unsigned long long)at);
		CHECK_EQ(at, size);
		close(files[f].fd);
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Recovers a log of so many records and returns the seconds of processor it took. */
static double recover(void)
{
	struct world_file *files = calloc(nfiles, sizeof(*files));
	struct rusage used;
	struct world w;
	double start, busy;
	int status;
	pid_t pid;

	CHECK(files);
	world_new(&w);
	build(&w, files);
	start = seconds();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_EQ(world_recover(&w).replayed, records);
		_exit(0);
	}
	CHECK_EQ(wait4(pid, &status, 0, &used), pid);
	CHECK_EQ(status, 0);
	start = seconds() - start;
	check(files);
	world_end(&w);
	free(files);
	busy = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	printf("%u records of %u bytes, %u files: recovered in %.2f s (%.2f s of processor), %ld KiB\n", records, bytes, nfiles,
	       start, busy, used.ru_maxrss);
	if (used.ru_maxrss > MEMORY_MAX)
		FAIL("recovery took %ld KiB, more than %ld", used.ru_maxrss, MEMORY_MAX);
	return busy;
}

int main(int argc, char **argv)
{
	const uint32_t all = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 2000000;
	double quarter = 0, whole = 0;
	bool slow = true;

	nfiles = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : nfiles;
	bytes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : bytes;
	CHECK(nfiles > 0 && bytes > 0 && nfiles <= all / 4);
	/* Whoever else uses the machine's caches makes the long one slower: that is no more often so than not. */
	for (int n = 0; n < TRIES && slow; n++) {
		records = all / 4;
		quarter = recover();
		records = all;
		whole = recover();
		slow = quarter > MEASURABLE && whole > 2 * 4 * quarter;
	}
	if (slow)
		FAIL("a record of %u takes %.1f times as long as one of %u", all, whole / 4 / quarter, all / 4);
	return 0;
}
