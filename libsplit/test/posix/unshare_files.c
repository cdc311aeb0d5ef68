/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of descriptors of one's own, by unshare and close_range: alone it changes nothing; a thread that has one beside others
 * finds other files under the same numbers, or is refused.
 */
#include "check.h"

#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

static int fd, unshared[2], done[2];

static int apart(uintptr_t how)
{
	return how ? close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_UNSHARE) : unshare(CLONE_FILES);
}

static void *thread(void *arg)
{
	char c;
	int mine;

	if (apart((uintptr_t)arg) < 0) {
		CHECK(errno == EOPNOTSUPP && write(unshared[1], "n", 1) == 1);
		return NULL;
	}
	if (!arg)
		CHECK(close(fd) == 0);
	FAILS(write(fd, "x", 1), EBADF);
	CHECK((mine = open("mine", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && dup2(mine, fd) == fd);
	CHECK(write(fd, "of the thread", 13) == 13 && write(unshared[1], "y", 1) == 1 && read(done[0], &c, 1) == 1);
	CHECK(write(fd, ", still", 7) == 7 && size_of(fd) == 20);
	return NULL;
}

static void beside_others(uintptr_t how)
{
	pthread_t t;
	char c;

	CHECK(pipe(unshared) == 0 && pipe(done) == 0 && (fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK(write(fd, "before ", 7) == 7 && pthread_create(&t, NULL, thread, (void *)how) == 0);
	CHECK(read(unshared[0], &c, 1) == 1);
	CHECK(write(fd, "after", 5) == 5 && size_of(fd) == 12 && write(done[1], "x", 1) == 1 && pthread_join(t, NULL) == 0);
	CHECK(write(fd, "!", 1) == 1 && close(fd) == 0);
	expect_file("f", "before after!");
	if (c == 'y')
		expect_file("mine", "of the thread, still");
}

static void alone(uintptr_t how)
{
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && write(fd, "alone", 5) == 5);
	if (apart(how) < 0) {
		CHECK(errno == EOPNOTSUPP && getenv("QEMU_CPU")); /* an emulator's own threads look like ours */
		return;
	}
	if (how) {
		FAILS(write(fd, "x", 1), EBADF);
		CHECK(open("f", O_RDWR | O_APPEND) == fd);
	}
	CHECK(write(fd, " still", 6) == 6 && size_of(fd) == 11);
	expect_file("f", "alone still");
	CHECK(open("g", O_RDWR | O_CREAT, 0644) > fd && write(fd + 1, "g", 1) == 1);
	expect_file("g", "g");
}

int main(void)
{
	for (uintptr_t how = 0; how < 4; how++) {
		pid_t pid = fork();

		if (pid > 0) {
			CHECK(status_of(pid) == 0);
			continue;
		}
		if (how < 2)
			beside_others(how);
		else
			alone(how - 2);
		exit(0);
	}
	return 0;
}
