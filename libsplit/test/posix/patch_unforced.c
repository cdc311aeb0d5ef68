/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A patch by a descriptor with O_DSYNC or O_SYNC whose bytes can't be forced is an error, and as after any other error the buffer can be stored to
 * and patched again. What it becomes part of then stays what it is, whatever becomes of the buffer.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "patch.h"

enum { N = 200 * BLOCK + 100 };

/* From here on nothing can be forced by this thread. */
static void no_force(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog prog = {sizeof(filter) / sizeof(*filter), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		SKIP("no filter for system calls");
}

static void patches(int flags)
{
	const int fd = open("file", O_RDWR | O_CREAT | O_TRUNC | flags, 0600),
		  other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600), pool = pool_here(4 << 20);
	char *p = filled(pool, 1, 0, N), *q;
	ssize_t r;

	CHECK(fd >= 0 && other >= 0);
	put(fd, 7, 0, N);
	no_force();
	r = splitfs_patch(fd, p, N, 0);
	CHECK(r == N || (r == -1 && errno == EIO));
	expect_snapshot(p, 1, 0, N);
	if (r == -1) {
		/* It may be in the file, or not. */
		CHECK(store_faults(p + BLOCK) == 0);
		fill(p, N, 2, 0);
		CHECK(splitfs_patch(other, p, N, 0) == N);
		expect_snapshot(p, 2, 0, N);
		expect(other, 2, 0, N);
		FAILS(splitfs_patch(other, p, N, 0), EINVAL);
	}
	expect(fd, 1, 0, N);
	q = filled(pool, 3, 0, N);
	CHECK(splitfs_free(p) == 0);
	p = filled(pool, 4, 0, N);
	expect(fd, 1, 0, N);
	expect(other, r == -1 ? 2 : 0, 0, r == -1 ? N : 0);
	CHECK(splitfs_free(p) == 0 && splitfs_free(q) == 0 && splitfs_pool_destroy(pool) == 0);
	CHECK(close(fd) == 0 && close(other) == 0);
	_exit(0);
}

int main(void)
{
	const int flags[] = {0, O_DSYNC, O_SYNC};

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	for (int i = 0; i < 3; i++) {
		const pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (pid == 0)
			patches(flags[i]);
		status = status_of(pid);
		if (status == 77)
			return 77;
		CHECK(status == 0);
	}
	return 0;
}
