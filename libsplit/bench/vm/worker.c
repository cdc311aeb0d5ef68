/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured process of vm_bench: POSIX calls on files, with or without the library in front of them. Time is the processor's time
 * stamp counter, because reading a clock may cost more than a call where the machine is emulated.
 */
#include "../timing.h"
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

static char buffer[4 * BLOCK];
static double ns_per_tick;
static struct slice out;
static unsigned done[METRIC_COUNT];

static void calibrate(void)
{
	const double from = now_ns(CLOCK_MONOTONIC);
	const uint64_t ticks = __rdtsc();
	double to;

	while ((to = now_ns(CLOCK_MONOTONIC)) < from + 2e7)
		;
	ns_per_tick = (to - from) / (double)(__rdtsc() - ticks);
}

static void took(enum metric m, uint64_t since)
{
	out.ns[m] += (double)(__rdtsc() - since) * ns_per_tick;
	done[m]++;
}

/* Work of many calls, of which a row is the mean. */
struct span {
	uint64_t written, since;
};

static struct span begin(void)
{
	struct span all;

	all.written = blocks_written();
	all.since = __rdtsc();
	return all;
}

static void end(enum metric m, const struct span *all, unsigned count)
{
	took(m, all->since);
	done[m] += count - 1;
	out.written[m] += (double)(blocks_written() - all->written);
}

static int open_file(const char *name, int flags)
{
	const int fd = open(name, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		fail(name);
	return fd;
}

static void append(int fd, size_t n)
{
	if (write(fd, buffer, n) != (ssize_t)n)
		fail("write");
}

static void force(int fd)
{
	if (fsync(fd) < 0)
		fail("fsync");
}

static void close_file(int fd)
{
	if (close(fd) < 0)
		fail("close");
}

/* The life of a mail, as in the paper's section 5.4. */
static void one_file(unsigned number)
{
	char name[32];
	struct span all = begin();
	uint64_t t;
	int fd;

	snprintf(name, sizeof(name), "mail-%u", number);
	t = __rdtsc();
	fd = open_file(name, O_RDWR | O_CREAT | O_EXCL);
	took(M_CREATE, t);
	for (int i = 0; i < 4; i++) {
		t = __rdtsc();
		append(fd, BLOCK);
		took(M_APPEND, t);
		t = __rdtsc();
		force(fd);
		took(M_FSYNC, t);
	}
	for (int pass = 0; pass < 3; pass++) {
		if (pass > 0) {
			t = __rdtsc();
			fd = open_file(name, O_RDWR);
			took(M_OPEN, t);
		}
		if (pass == 1) {
			t = __rdtsc();
			if (read(fd, buffer, 4 * BLOCK) != 4 * BLOCK)
				fail("read");
			took(M_READ, t);
		}
		t = __rdtsc();
		close_file(fd);
		took(M_CLOSE, t);
	}
	t = __rdtsc();
	if (unlink(name) < 0)
		fail("unlink");
	took(M_UNLINK, t);
	end(M_FILE, &all, 1);
}

/* Names that survive a power loss when the call after them returns; in sync and strict they do before it. */
static void names(unsigned count)
{
	const int dir = open_file(".", O_RDONLY | O_DIRECTORY);

	for (unsigned i = 0; i < count; i++) {
		uint64_t t = __rdtsc();
		const int fd = open_file("name", O_RDWR | O_CREAT | O_EXCL);

		force(dir);
		took(M_CREATE_FORCED, t);
		close_file(fd);
		t = __rdtsc();
		if (unlink("name") < 0)
			fail("unlink");
		force(dir);
		took(M_UNLINK_FORCED, t);
	}
	close_file(dir);
}

/* `count` appends to a new file, forced after each `every` of them (0: at the end only). */
static void appends(unsigned count, unsigned every)
{
	int fd = open_file("log", O_WRONLY | O_CREAT | O_TRUNC);
	const struct span all = begin();
	uint64_t t;

	for (unsigned i = 1; i <= count; i++) {
		append(fd, BLOCK);
		if (every && i % every == 0) {
			t = __rdtsc();
			force(fd);
			/* The first one commits the new file, whoever wrote to it. */
			if (i > every)
				took(M_FSYNC_10, t);
		}
	}
	end(every ? M_APPEND_10 : M_APPEND_ONLY, &all, count);
	if (!every) {
		t = __rdtsc();
		force(fd);
		took(M_FSYNC_ALL, t);
	}
	t = __rdtsc();
	close_file(fd);
	took(M_APPEND_CLOSE, t);
	if (unlink("log") < 0)
		fail("unlink");
}

/* A file of `count` blocks that stays from slice to slice, written once. */
static int table(unsigned count)
{
	int fd = open_file("table", O_RDWR | O_CREAT);
	struct stat st;

	if (fstat(fd, &st) < 0)
		fail("fstat");
	if ((uint64_t)st.st_size < (uint64_t)count * BLOCK) {
		for (unsigned i = 0; i < count; i++)
			if (pwrite(fd, buffer, BLOCK, (off_t)i * BLOCK) != BLOCK)
				fail("pwrite");
		force(fd);
	}
	return fd;
}

static void overwrites(unsigned count)
{
	int fd = table(count);

	for (int every = 0; every <= 10; every += 10) {
		const struct span all = begin();

		for (unsigned i = 0; i < count; i++) {
			if (pwrite(fd, buffer, BLOCK, (off_t)i * BLOCK) != BLOCK)
				fail("pwrite");
			if (every && i % 10 == 9)
				force(fd);
		}
		end(every ? M_OVERWRITE_10 : M_OVERWRITE, &all, count);
		force(fd);
	}
	close_file(fd);
}

static void reads(unsigned count)
{
	int fd = table(count);

	for (int random = 0; random <= 1; random++) {
		const struct span all = begin();
		uint64_t x = 88172645463325252ull;

		for (unsigned i = 0; i < count; i++) {
			next_random(&x);
			if (pread(fd, buffer, BLOCK, (off_t)(random ? x % count : i) * BLOCK) != BLOCK)
				fail("pread");
		}
		end(random ? M_READ_RANDOM : M_READ_SEQ, &all, count);
	}
	close_file(fd);
}

int worker_main(void)
{
	char line[64], name[32];
	unsigned count;

	calibrate();
	memset(buffer, 'x', sizeof(buffer));
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %u", name, &count) != 2)
			return 2;
		memset(&out, 0, sizeof(out));
		memset(done, 0, sizeof(done));
		if (!strcmp(name, "files"))
			for (unsigned i = 0; i < count; i++)
				one_file(i);
		else if (!strcmp(name, "names"))
			names(count);
		else if (!strcmp(name, "appends"))
			appends(count, 0);
		else if (!strcmp(name, "appends-10"))
			appends(count, 10);
		else if (!strcmp(name, "overwrites"))
			overwrites(count);
		else if (!strcmp(name, "reads"))
			reads(count);
		else
			return 2;
		for (int m = 0; m < METRIC_COUNT; m++) {
			out.ns[m] = done[m] ? out.ns[m] / done[m] : 0;
			out.written[m] = done[m] ? out.written[m] / done[m] : 0;
		}
		if (write(STDOUT_FILENO, &out, sizeof(out)) != sizeof(out))
			return 1;
	}
	return 0;
}
