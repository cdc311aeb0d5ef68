/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with files of their own open, append, overwrite, rename, truncate and close at the same time. */
#include "check.h"

#include <pthread.h>

static void *work(void *arg)
{
	unsigned who = (unsigned)(uintptr_t)arg;
	char name[32], other[32];

	for (unsigned i = 0; i < 150; i++) {
		int fd;

		snprintf(name, sizeof(name), "f%u.%u", who, i % 3);
		snprintf(other, sizeof(other), "g%u", who);
		CHECK((fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		put(fd, who + i, 0, 20000);
		put(fd, who + i + 1, 3000, 4000);
		CHECK(rename(name, other) == 0 && ftruncate(fd, 15000) == 0);
		put(fd, who + i, 15000, 3);
		expect(fd, who + i, 0, 3000);
		expect(fd, who + i + 1, 3000, 4000);
		expect(fd, who + i, 7000, 8003);
		CHECK(close(fd) == 0 && (fd = open(other, O_RDONLY)) >= 0 && size_of(fd) == 15003);
		expect(fd, who + i, 7000, 8003);
		CHECK(close(fd) == 0);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[6];

	for (uintptr_t i = 0; i < 6; i++)
		CHECK(pthread_create(&t[i], NULL, work, (void *)(i * 1000)) == 0);
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	return 0;
}
