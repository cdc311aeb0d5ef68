/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pattern of LMDB: a file is mapped, and written to through a description that is opened with O_DSYNC. The kernel writes, and has forced
 * what it wrote when it returns: nobody forces it once more.
 */
#include "asked.h"

#include <sys/mman.h>

#define SIZE	(64ul << 10)
#define WRITES	50
#define SECONDS 60

static struct sock_filter forces[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 1, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void writer(int in, int out)
{
	int fd = open("f", O_RDWR | O_CREAT, 0600), sync;
	unsigned char *p;

	put(fd, 1, 0, SIZE);
	p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	sync = open("f", O_WRONLY | O_DSYNC);
	CHECK(p != MAP_FAILED && sync >= 0 && fsync(fd) == 0);
	put(sync, 2, 0, 100);
	be_asked(out, forces, sizeof(forces) / sizeof(forces[0]));
	alarm(SECONDS);
	hear(in);
	for (unsigned i = 0; i < WRITES; i++) {
		put(sync, 3 + i, 4096, 100);
		CHECK(p[4096] == byte_at(3 + i, 4096));
	}
	tell(out);
	_exit(0);
}

int main(void)
{
	const struct asked a = asked_fork(writer);
	const int forced = answer(&a, a.from, SECONDS * 1000, NULL);

	CHECK(status_of(a.pid) == 0);
	asked_end(&a);
	if (forced > 0) {
		fprintf(stderr, "forced %d times for %d writes\n", forced, WRITES);
		return 1;
	}
	return 0;
}
