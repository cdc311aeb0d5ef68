/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SPLITFS_PROTECT=on: a store through a wild pointer into what the library has mapped (window, staging files, log) is SIGSEGV, in threads
 * and in signal handlers, and the file is whole; all calls do what they do without. Skipped where the processor has no protection keys.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "patch.h"

enum { SIZE = 64 * BLOCK, SHORT = 100 };

/* Stores to every mapping of the library that can be stored to; of files whose path has `part` in it: how many there are, negative where one was
 * not refused. */
static int stray(const char *part)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], rights[5];
	unsigned long from, to;
	int n = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		CHECK(sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3);
		if (rights[1] != 'w' || rights[3] != 's' || !strstr(line, part))
			continue;
		n++;
		if (store_faults((void *)from) != SIGSEGV)
			n = -1000;
	}
	CHECK(fclose(maps) == 0);
	return n;
}

/* Each mapping of the log but the one page of counters. */
static void stray_log(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to, off;
	char line[512], rights[5];
	int barred = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		CHECK(sscanf(line, "%lx-%lx %4s %lx", &from, &to, rights, &off) == 4);
		if (rights[1] != 'w' || !strstr(line, ".splitfs/log/") || off == BLOCK)
			continue;
		CHECK(store_faults((void *)from) == SIGSEGV && store_faults((void *)(to - BLOCK)) == SIGSEGV);
		barred++;
	}
	CHECK(fclose(maps) == 0);
	CHECK(barred == 2); /* header and records */
}

static void everything(int fd)
{
	char *const volatile nowhere = (char *)8;
	char buf[SHORT];

	put(fd, 1, 0, SIZE);
	for (int i = 0; i < 200; i++) {
		fill(buf, SHORT, 1, (uint64_t)SIZE + (uint64_t)i * SHORT);
		CHECK(pwrite(fd, buf, SHORT, SIZE + i * SHORT) == SHORT);
	}
	CHECK(fsync(fd) == 0);
	put(fd, 1, 3 * BLOCK, 2 * BLOCK);
	put(fd, 1, 5 * BLOCK + 7, 3000);
	expect(fd, 1, 0, SIZE + 200 * SHORT);
	FAILS(pwrite(fd, nowhere, BLOCK, 0), EFAULT);
	FAILS(pwrite(fd, nowhere, SHORT, SIZE + 200 * SHORT), EFAULT);
	expect(fd, 1, 0, SIZE + 200 * SHORT);
	put(fd, 1, SIZE + 200 * SHORT, BLOCK);
}

static int handled = -1, in_handler;

static void handler(int sig)
{
	(void)sig;
	put(in_handler, 1, 0, 5000);
	expect(in_handler, 1, 0, 5000);
	put(in_handler, 1, 9 * BLOCK, BLOCK);
	handled = stray("/file");
}

static void *thread(void *arg)
{
	const int fd = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);

	(void)arg;
	everything(fd);
	CHECK(raise(SIGUSR1) == 0);
	everything(fd);
	CHECK(stray("/file") > 0 && close(fd) == 0);
	return NULL;
}

static void buffers(int fd)
{
	const int pool = splitfs_pool_create(fd, 1 << 20);
	char *p = splitfs_alloc(pool, 0, 4 * BLOCK), *q = splitfs_alloc(pool, 0, 4 * BLOCK);

	CHECK(p && q);
	fill(p, 4 * BLOCK, 1, 0);
	fill(q, 4 * BLOCK, 1, 0);
	CHECK(splitfs_patch(fd, p, 4 * BLOCK, 0) == 4 * BLOCK && store_faults(p) == SIGSEGV);
	CHECK(splitfs_free(p) == 0 && splitfs_free(q) == 0);
	CHECK(splitfs_pool_destroy(pool) == 0);
	everything(fd);
	/* What buffers have had is protected again. */
	CHECK(store_faults(q) == SIGSEGV);
}

/* It dies, and what it has written is there. */
static void dies(void)
{
	const pid_t pid = fork();
	int fd;

	if (pid == 0) {
		fd = open("victim", O_RDWR | O_CREAT | O_TRUNC, 0600);
		/* In pieces, so many and so small that it is staged whatever a grant costs. */
		for (off_t at = 0; at < SIZE; at += 512)
			put(fd, 1, at, 512);
		FILE *maps = fopen("/proc/self/maps", "r");
		unsigned long from, to;
		char line[512];

		while (fgets(line, sizeof(line), maps))
			if (strstr(line, "-w") || strstr(line, "rw-s"))
				if (strstr(line, ".splitfs/pool/") && sscanf(line, "%lx-%lx", &from, &to) == 2)
					memset((void *)from, 0xee, to - from);
		_exit(1);
	}
	CHECK(status_of(pid) == 128 + SIGSEGV);
	usleep(300000);
	fd = open("victim", O_RDWR);
	CHECK(size_of(fd) == SIZE);
	expect(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0);
}

int main(int argc, char **argv)
{
	const struct sigaction act = {.sa_handler = handler};
	const int key = pkey_alloc(0, 0);
	pthread_t t;
	int fd;

	(void)argc;
	if (served() && !getenv("SPLITFS_PROTECT")) {
		CHECK(setenv("SPLITFS_PROTECT", "on", 1) == 0);
		execv("/proc/self/exe", argv);
		CHECK(0);
	}
	fd = in_handler = open("file", O_RDWR | O_CREAT, 0600);
	everything(fd);
	if (!served())
		return 0;
	if (key < 0)
		SKIP("this processor has no protection keys");
	CHECK(pkey_free(key) == 0);
	put(fd, 1, SIZE, 10 * BLOCK);
	CHECK(stray("/file") > 0 && stray(".splitfs/pool/") > 0);
	stray_log();
	CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && raise(SIGUSR1) == 0);
	CHECK(handled > 0);
	everything(fd);
	CHECK(pthread_create(&t, NULL, thread, NULL) == 0 && pthread_join(t, NULL) == 0);
	buffers(fd);
	expect(fd, 1, 0, SIZE);
	dies();
	return 0;
}
