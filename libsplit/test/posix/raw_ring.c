/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring opens a file that another process has staged, by a system call that the library passes on (syscall(2)) and by one that it does not see: what
 * is found there is all that was written.
 */
#include "check.h"

#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/mman.h>

enum { LEN = 300000 };

static char want[LEN], found[LEN + 1];

static int enter(int ring, int seen)
{
	return (int)(seen ? syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0)
			  : unseen(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS));
}

static void *part(int ring, size_t n, off_t which)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, which);

	CHECK(p != MAP_FAILED);
	return p;
}

static int open_by(int ring, const struct io_uring_params *p, int seen)
{
	char *const sq = part(ring, p->sq_off.array + p->sq_entries * 4, IORING_OFF_SQ_RING);
	char *const cq = part(ring, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
	struct io_uring_sqe *const sqe = part(ring, p->sq_entries * sizeof(*sqe), IORING_OFF_SQES);

	*sqe = (struct io_uring_sqe){
		.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uintptr_t) "f", .open_flags = O_RDONLY};
	*(unsigned *)(sq + p->sq_off.array) = 0;
	__atomic_store_n((unsigned *)(sq + p->sq_off.tail), 1, __ATOMIC_RELEASE);
	CHECK(enter(ring, seen) == 1);
	return ((struct io_uring_cqe *)(cq + p->cq_off.cqes))->res;
}

static void ring(int seen)
{
	struct io_uring_params p = {0};
	const int fd = (int)syscall(SYS_io_uring_setup, 4, &p);
	int opened;

	if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
		puts("no rings here");
		exit(77);
	}
	CHECK(fd >= 0);
	opened = open_by(fd, &p, seen);
	CHECK(opened >= 0);
	CHECK(unseen(SYS_pread64, opened, (long)found, sizeof(found), 0) == LEN && memcmp(found, want, LEN) == 0);
	CHECK(unseen(SYS_close, opened, 0, 0, 0) == 0 && close(fd) == 0);
}

/* Holds the file, with what it has written, until it is told to end. */
static void holds(int in, int out)
{
	const int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
	char c = 0;

	CHECK(fd >= 0 && write(fd, want, LEN) == LEN);
	CHECK(write(out, &c, 1) == 1 && read(in, &c, 1) == 1);
	exit(0);
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	char c = 0;

	if (geteuid() != 0) {
		puts("the kernel tells only root who opens a file");
		return 77;
	}
	fill(want, LEN, 1, 0);
	if (argc > 1)
		holds(0, 1);
	for (int seen = 0; seen < 2; seen++) {
		const int own = open("g", O_RDWR | O_CREAT, 0600); /* so that this process is a client */
		pid_t pid;

		CHECK(own >= 0 && write(own, want, LEN) == LEN);
		CHECK(pipe(there) == 0 && pipe(back) == 0);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			/* Another program, as a ring stops staging in its process and those that it forks. */
			CHECK(dup2(there[0], 0) == 0 && dup2(back[1], 1) == 1);
			execl("/proc/self/exe", argv[0], "holds", NULL);
			_exit(9);
		}
		CHECK(read(back[0], &c, 1) == 1);
		ring(seen);
		CHECK(write(there[1], &c, 1) == 1 && status_of(pid) == 0);
		CHECK(close(own) == 0);
	}
	return 0;
}
