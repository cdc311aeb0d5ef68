/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that is closed while another thread reads from it: that read ends as it began, and the next file opened begins at its start. */
#include <pthread.h>

#include "check.h"

enum { SIZE = 48 << 20, TURNS = 12 };

static int fd;
static char *buf;
static ssize_t got;
static int err;
static int reading;

static void *reads(void *arg)
{
	(void)arg;
	__atomic_store_n(&reading, 1, __ATOMIC_RELEASE);
	got = read(fd, buf, SIZE);
	err = errno;
	return NULL;
}

int main(void)
{
	char text[16];
	pthread_t thread;
	int other, null;

	buf = malloc(SIZE);
	CHECK(buf && (fd = open("large", O_RDWR | O_CREAT, 0644)) >= 0);
	memset(buf, 7, SIZE);
	CHECK(write(fd, buf, SIZE) == SIZE && close(fd) == 0);
	CHECK((other = open("small", O_RDWR | O_CREAT, 0644)) >= 0 && write(other, "hello world", 11) == 11 &&
	      close(other) == 0);
	for (int i = 0; i < TURNS; i++) {
		reading = 0;
		CHECK((fd = open("large", O_RDONLY)) >= 0 && pread(fd, text, 1, 0) == 1);
		CHECK(pthread_create(&thread, NULL, reads, NULL) == 0);
		while (!__atomic_load_n(&reading, __ATOMIC_ACQUIRE))
			;
		usleep(500u * (unsigned)i);
		/* The number goes to something else, in case the read has not begun; between the two it is nobody's. */
		CHECK(close(fd) == 0 && (null = open("/dev/null", O_RDONLY)) == fd);
		CHECK((other = open("small", O_RDONLY)) >= 0 && read(other, text, sizeof(text)) == 11 &&
		      memcmp(text, "hello world", 11) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(got == SIZE || got == 0 || (got == -1 && err == EBADF));
		CHECK(close(other) == 0 && close(null) == 0);
	}
	return 0;
}
