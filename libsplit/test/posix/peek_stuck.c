/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of another process is in the middle of an overwrite, and waits for memory that it writes from, when this one takes a snapshot: what is
 * stored when it goes on is not in the snapshot, and in the file in the end.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "peek.h"

enum { SIZE = 64 * BLOCK, N = 8 * BLOCK, TRIES = 1000 };

static int fd;
static char *from;

static void *writes(void *arg)
{
	CHECK(pwrite(fd, from, N, BLOCK) == N);
	return arg;
}

static void give(int faults, int first, int end)
{
	static char bytes[N] __attribute__((aligned(BLOCK)));

	memset(bytes, 'z', N);
	for (int i = first; i < end; i++) {
		struct uffdio_copy page = {
			.dst = (unsigned long)from + (unsigned long)i * BLOCK, .src = (unsigned long)bytes, .len = BLOCK};

		CHECK(ioctl(faults, UFFDIO_COPY, &page) == 0);
	}
}

static void stuck(int faults, int said, int go)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t thread;

	CHECK(ioctl(faults, UFFDIO_API, &api) == 0);
	fd = open("file", O_RDWR);
	put(fd, 1, 0, SIZE);
	CHECK(fsync(fd) == 0);
	from = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(from != MAP_FAILED);
	reg.range.start = (unsigned long)from;
	reg.range.len = N;
	CHECK(ioctl(faults, UFFDIO_REGISTER, &reg) == 0);
	give(faults, 0, 1);
	CHECK(pthread_create(&thread, NULL, writes, NULL) == 0);
	usleep(200000);
	tell(said);
	hear(go);
	give(faults, 1, N / BLOCK);
	CHECK(pthread_join(thread, NULL) == 0);
	_exit(0);
}

int main(void)
{
	static char was[SIZE], want[N];
	const void *p = NULL;
	int said[2], go[2];
	size_t got = 0;
	pid_t pid;

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	CHECK(pipe(said) == 0 && pipe(go) == 0);
	fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	put(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		const int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

		if (faults < 0) {
			tell(said[1]);
			_exit(77);
		}
		stuck(faults, said[1], go[0]);
	}
	hear(said[0]);
	fd = open("file", O_RDWR);
	for (int i = 0; !p && i < TRIES; i++) {
		p = splitfs_peek(fd, 0, SIZE, &got);
		if (!p)
			usleep(1000);
	}
	if (p)
		memcpy(was, p, got);
	tell(go[1]);
	switch (status_of(pid)) {
	case 0:
		break;
	case 77:
		SKIP("no userfaultfd");
	default:
		return 1;
	}
	CHECK(!p || (memcmp(was, p, got) == 0 && splitfs_unpeek(p) == 0));
	memset(want, 'z', N);
	CHECK(pread(fd, was, N, BLOCK) == N && memcmp(was, want, N) == 0);
	return 0;
}
