/* SPDX-License-Identifier: Apache-2.0 */
/* An address that can't be read or written is an error of the call, by name and by number, whichever call it is. */
#include "check.h"

#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/xattr.h>

/* Hidden from the compiler, which would refuse them. */
static void *volatile bad;
static long volatile fd;

static void data(void)
{
	FAILS(read((int)fd, bad, 10), EFAULT);
	FAILS(write((int)fd, bad, 10), EFAULT);
	FAILS(pread((int)fd, bad, 10, 0), EFAULT);
	FAILS(pwrite((int)fd, bad, 10, 0), EFAULT);
	FAILS(syscall(SYS_read, fd, bad, 10l), EFAULT);
	FAILS(syscall(SYS_write, fd, bad, 10l), EFAULT);
	FAILS(syscall(SYS_pread64, fd, bad, 10l, 0l), EFAULT);
	FAILS(syscall(SYS_pwrite64, fd, bad, 10l, 0l), EFAULT);
}

static void vectors(void)
{
	const struct iovec iov = {bad, 10};

	FAILS(readv((int)fd, &iov, 1), EFAULT);
	FAILS(writev((int)fd, &iov, 1), EFAULT);
	FAILS(preadv((int)fd, &iov, 1, 0), EFAULT);
	FAILS(pwritev((int)fd, &iov, 1, 0), EFAULT);
	FAILS(syscall(SYS_pwritev2, fd, &iov, 1l, 0l, 0l, 0l), EFAULT);
	FAILS(readv((int)fd, bad, 1), EFAULT);
	FAILS(writev((int)fd, bad, 1), EFAULT);
	FAILS(preadv((int)fd, bad, 1, 0), EFAULT);
	FAILS(pwritev((int)fd, bad, 1, 0), EFAULT);
	FAILS(preadv2((int)fd, bad, 1, 0, 0), EFAULT);
	FAILS(pwritev2((int)fd, bad, 1, 0, 0), EFAULT);
	FAILS(syscall(SYS_readv, fd, bad, 1l), EFAULT);
	FAILS(syscall(SYS_writev, fd, bad, 1l), EFAULT);
	FAILS(syscall(SYS_preadv, fd, bad, 1l, 0l, 0l), EFAULT);
	FAILS(syscall(SYS_pwritev, fd, bad, 1l, 0l, 0l), EFAULT);
	FAILS(syscall(SYS_preadv2, fd, bad, 1l, 0l, 0l, 0l), EFAULT);
	FAILS(syscall(SYS_pwritev2, fd, bad, 1l, 0l, 0l, 0l), EFAULT);
}

static void paths(void)
{
	const char *const name = bad;
	struct stat st;

	FAILS(open(name, O_RDONLY), EFAULT);
	FAILS(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644), EFAULT);
	FAILS(openat(AT_FDCWD, name, O_RDONLY), EFAULT);
	FAILS(syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_TRUNC), EFAULT);
	FAILS(stat(name, &st), EFAULT);
	FAILS(truncate(name, 1), EFAULT);
	FAILS(rename(name, "g"), EFAULT);
	FAILS(rename("f", name), EFAULT);
	FAILS(link(name, "g"), EFAULT);
	FAILS(link("f", name), EFAULT);
	FAILS(unlink(name), EFAULT);
	FAILS(mkdir(name, 0755), EFAULT);
	FAILS(rmdir(name), EFAULT);
	FAILS(symlink("f", name), EFAULT);
	FAILS(chmod(name, 0644), EFAULT);
	FAILS(chown(name, 0, 0), EFAULT);
	FAILS(utimensat(AT_FDCWD, name, NULL, 0), EFAULT);
	FAILS(setxattr(name, "user.x", "", 0, 0), EFAULT);
	FAILS(syscall(SYS_truncate, name, 1l), EFAULT);
	FAILS(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, name, 0l), EFAULT);
	FAILS(syscall(SYS_unlinkat, AT_FDCWD, name, 0l), EFAULT);
	FAILS(syscall(SYS_mkdirat, AT_FDCWD, name, 0755l), EFAULT);
	FAILS(syscall(SYS_fchmodat, AT_FDCWD, name, 0644l), EFAULT);
	FAILS(syscall(SYS_utimensat, AT_FDCWD, name, NULL, 0l), EFAULT);
}

static void structures(void)
{
	struct stat *const st = bad;
	long context = 0;

	FAILS(fstat((int)fd, st), EFAULT);
	FAILS(stat("f", st), EFAULT);
	FAILS(syscall(SYS_fstat, fd, st), EFAULT);
	FAILS(syscall(SYS_newfstatat, AT_FDCWD, "f", st, 0l), EFAULT);
	FAILS(syscall(SYS_statx, AT_FDCWD, "f", 0l, STATX_BASIC_STATS, bad), EFAULT);
	FAILS(syscall(SYS_openat2, AT_FDCWD, "f", bad, sizeof(struct open_how)), EFAULT);
	FAILS(syscall(SYS_clone3, bad, 64l), EFAULT);
	FAILS(ioctl((int)fd, FICLONERANGE, bad), EFAULT);
	FAILS(syscall(SYS_ioctl, fd, FICLONERANGE, bad), EFAULT);
	FAILS(syscall(SYS_sendmsg, fd, bad, 0l), ENOTSOCK);
	FAILS(syscall(SYS_recvmsg, fd, bad, 0l), ENOTSOCK);
	FAILS(syscall(SYS_sendmmsg, fd, bad, 1l, 0l), ENOTSOCK);
	FAILS(copy_file_range((int)fd, bad, (int)fd, NULL, 1, 0), EFAULT);
	FAILS(sendfile((int)fd, (int)fd, bad, 1), EFAULT);
	FAILS(fcntl((int)fd, F_SETLK, bad), EFAULT);
	FAILS(syscall(SYS_fcntl, fd, F_SETLK, bad), EFAULT);
	if (syscall(SYS_io_setup, 4l, &context) == 0) {
		struct iocb *one = bad;

		FAILS(syscall(SYS_io_submit, context, 1l, bad), EFAULT);
		FAILS(syscall(SYS_io_submit, context, 1l, &one), EFAULT);
	}
}

int main(void)
{
	char *page = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	put((int)fd, 1, 0, 10000);
	CHECK(page != MAP_FAILED);
	for (size_t i = 0; i < 4; i++) {
		bad = (void *)(uintptr_t[]){16, 4096, UINTPTR_MAX - 4095, (uintptr_t)page}[i];
		data();
		vectors();
		paths();
		structures();
	}
	CHECK(size_of((int)fd) == 10000);
	expect((int)fd, 1, 0, 10000);
	return 0;
}
