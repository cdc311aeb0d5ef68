/* SPDX-License-Identifier: Apache-2.0 */
/* The file calls by number, through syscall(), mixed with the named ones. */
#include "check.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef SYS_dup2 /* arm64: newer forms only */
#define DUP2(from, to)	 syscall(SYS_dup3, from, to, 0L)
#define FORK()		 syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L)
#define RENAME(from, to) syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0L)
#else
#define DUP2(from, to)	 syscall(SYS_dup2, from, to)
#define FORK()		 syscall(SYS_fork)
#define RENAME(from, to) syscall(SYS_rename, from, to)
#endif

int main(void)
{
	long fd = syscall(SYS_openat, AT_FDCWD, "f", O_RDWR | O_CREAT, 0644L);
	struct iovec iov = {"vector", 6};
	int named = open("f", O_RDWR), two;
	struct stat st;
	off_t off = 0;
	char buf[32];
	long pid;

	CHECK(fd >= 0 && syscall(SYS_write, fd, "hello", 5L) == 5 && size_of(named) == 5);
	CHECK(pwrite(named, "HE", 2, 0) == 2 && syscall(SYS_pread64, fd, buf, 5L, 0L) == 5 && memcmp(buf, "HEllo", 5) == 0);
	CHECK(syscall(SYS_pwritev, fd, &iov, 1L, 5L, 0L) == 6 && syscall(SYS_fstat, fd, &st) == 0 && st.st_size == 11);
	CHECK(syscall(SYS_lseek, fd, 2L, (long)SEEK_SET) == 2 && read((int)fd, buf, 3) == 3 && memcmp(buf, "llo", 3) == 0);
	CHECK(syscall(SYS_newfstatat, AT_FDCWD, "f", &st, 0L) == 0 && st.st_size == 11);
	CHECK((two = open("g", O_RDWR | O_CREAT, 0644)) >= 0);
	CHECK(syscall(SYS_copy_file_range, named, &off, (long)two, NULL, 11L, 0L) == 11 && size_of(two) == 11);
	expect_file("g", "HEllovector");
	CHECK(syscall(SYS_ftruncate, fd, 3L) == 0 && size_of(named) == 3 && DUP2(fd, 50L) == 50);
	CHECK(lseek(50, 0, SEEK_END) == 3 && syscall(SYS_write, fd, "!", 1L) == 1);
	if ((pid = FORK()) == 0) {
		CHECK(write(50, "child", 5) == 5);
		syscall(SYS_exit_group, 0L);
	}
	CHECK(status_of((pid_t)pid) == 0 && syscall(SYS_fsync, fd) == 0 && RENAME("f", "h") == 0);
	CHECK(syscall(SYS_close, fd) == 0 && syscall(SYS_close, fd) == -1 && errno == EBADF);
	CHECK(syscall(SYS_pread64, 50L, buf, 1L, -1L) == -1 && errno == EINVAL);
	expect_file("h", "HEl!child");
	/* the only thread ends, not the process by name; an emulator has threads of its own, which look like ours */
	if (getenv("QEMU_CPU"))
		return 0;
	if ((pid = FORK()) == 0) {
		CHECK(write(50, "!", 1) == 1);
		syscall(SYS_exit, 3L);
	}
	CHECK(status_of((pid_t)pid) == 3);
	expect_file("h", "HEl!child!");
	return 0;
}
