/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where descriptors are scarce, so that files take turns to have one of the library's, threads that write, lock and stat
 * files beside each other: a lock that was taken is there, and stat by name shows what was written before it.
 */
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>

enum { LIMIT = 64, CHURNED = 12, ROUNDS = 100, STEP = 700 };

static int over;

/* Writes to more files in turn than have room. */
static void *churn(void *arg)
{
	int fds[CHURNED];

	(void)arg;
	for (int i = 0; i < CHURNED; i++) {
		char name[16];

		sprintf(name, "churn%d", i);
		CHECK((fds[i] = open(name, O_RDWR | O_CREAT, 0644)) >= 0);
	}
	for (unsigned n = 0; !__atomic_load_n(&over, __ATOMIC_ACQUIRE); n++)
		put(fds[n % CHURNED], n, n % 50 * STEP, STEP);
	for (int i = 0; i < CHURNED; i++)
		CHECK(close(fds[i]) == 0);
	return NULL;
}

/* Another process says whether there is a lock on the file with that number. */
static void judge(int from, int to)
{
	int file;

	while (read(from, &file, sizeof(file)) == sizeof(file)) {
		struct flock seen = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		char name[16];
		int fd;

		sprintf(name, "locked%d", file);
		CHECK((fd = open(name, O_RDWR)) >= 0 && fcntl(fd, F_GETLK, &seen) == 0 && close(fd) == 0);
		file = seen.l_type == F_WRLCK && seen.l_pid == getppid();
		CHECK(write(to, &file, sizeof(file)) == sizeof(file));
	}
	exit(0);
}

static void lock_one(int file, int to, int from)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char name[16];
	int fd, answer;

	sprintf(name, "locked%d", file);
	CHECK((fd = open(name, O_RDWR | O_CREAT, 0644)) >= 0);
	put(fd, 1, 0, STEP);
	CHECK(fcntl(fd, F_SETLK, &all) == 0);
	CHECK(write(to, &file, sizeof(file)) == sizeof(file));
	CHECK(read(from, &answer, sizeof(answer)) == sizeof(answer) && answer == 1);
	put(fd, 1, STEP, STEP);
	expect(fd, 1, 0, 2 * STEP);
	CHECK(close(fd) == 0 && unlink(name) == 0);
}

static void *stat_often(void *arg)
{
	const int fd = open("grows", O_RDWR | O_CREAT, 0644);
	struct stat st;

	(void)arg;
	CHECK(fd >= 0);
	for (off_t size = STEP; !__atomic_load_n(&over, __ATOMIC_ACQUIRE); size += STEP) {
		put(fd, 1, size - STEP, STEP);
		for (int i = 0; i < 20; i++)
			CHECK(stat("grows", &st) == 0 && st.st_size == size);
	}
	CHECK(close(fd) == 0);
	return NULL;
}

int main(void)
{
	const struct rlimit both = {LIMIT, LIMIT};
	pthread_t churns, stats;
	int there[2], back[2];
	pid_t pid;

	CHECK(pipe(there) == 0 && pipe(back) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		CHECK(close(there[1]) == 0);
		judge(there[0], back[1]);
	}
	CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0);
	CHECK(pthread_create(&churns, NULL, churn, NULL) == 0 && pthread_create(&stats, NULL, stat_often, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++)
		lock_one(i, there[1], back[0]);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(churns, NULL) == 0 && pthread_join(stats, NULL) == 0);
	CHECK(close(there[1]) == 0 && status_of(pid) == 0);
	return 0;
}
