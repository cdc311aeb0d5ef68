/* SPDX-License-Identifier: Apache-2.0 */
/* One thread appends, others read: a byte below the size is always the right one. */
#include "check.h"

#include <pthread.h>

static int fd;
static _Atomic int done;

static void *reader(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	unsigned char buf[700];

	while (!done) {
		off_t size = size_of(fd), off;
		ssize_t n;

		if (!size)
			continue;
		seed = seed * 1103515245u + 12345u;
		off = (off_t)(seed % (unsigned)size);
		n = pread(fd, buf, sizeof(buf), off);
		CHECK(n > 0 && (n == sizeof(buf) || off + n >= size));
		for (ssize_t i = 0; i < n; i++)
			CHECK(buf[i] == byte_at(1, (uint64_t)(off + i)));
	}
	return NULL;
}

int main(void)
{
	unsigned char buf[5000];
	pthread_t t[2];
	uint64_t off = 0;

	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, reader, (void *)(i + 5)) == 0);
	for (unsigned i = 0; i < 6000; i++) {
		size_t n = i * 37 % sizeof(buf) + 1;

		fill(buf, n, 1, off);
		CHECK(write(fd, buf, n) == (ssize_t)n);
		off += n;
		if (i % 500 == 0)
			CHECK(fsync(fd) == 0);
	}
	done = 1;
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	CHECK(size_of(fd) == (off_t)off);
	expect(fd, 1, 0, off);
	return 0;
}
