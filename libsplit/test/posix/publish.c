/* SPDX-License-Identifier: Apache-2.0 */
/* Calls after which everybody sees what was written: looked at by system calls that no library sees. */
#include "check.h"

#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statfs.h>

static int fd, other;
static off_t size;

static int by_sync(void)
{
	sync();
	return 0;
}
static int by_syncfs(void)
{
	return syncfs(other); /* a descriptor of another file of the file system */
}
static int by_sync_file_range(void)
{
	return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}
static int by_fsync(void)
{
	return fsync(fd);
}
static int by_fdatasync(void)
{
	return fdatasync(fd);
}
static int by_flock(void)
{
	return flock(fd, LOCK_SH);
}
static int by_lockf(void)
{
	return lockf(fd, F_TEST, 1);
}
static int by_setlk(void)
{
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_SETLK, &l);
}
static int by_ofd_setlk(void)
{
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_SETLKW, &l);
}
static int by_ofd_unlock(void)
{
	struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_SETLK, &l);
}
static int by_mmap(void)
{
	void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);

	return p == MAP_FAILED ? -1 : munmap(p, (size_t)size);
}
static int by_ioctl(void)
{
	long version;

	return ioctl(fd, FS_IOC_GETFLAGS, &version) == 0 || errno == ENOTTY || errno == EOPNOTSUPP ? 0 : -1;
}
static int by_rename(void)
{
	return rename("f", "g") || rename("g", "f");
}
static int by_link(void)
{
	return link("f", "l") || unlink("l");
}
static int by_raw_ioctl(void)
{
	long version;

	syscall(SYS_ioctl, fd, FS_IOC_GETFLAGS, &version);
	return 0;
}
static int by_raw_sync(void)
{
	return (int)syscall(SYS_sync_file_range, fd, 0L, 0L, 0L);
}

static const struct {
	const char *name;
	int (*call)(void);
	int file; /* 1: each with a file of its own, which the kernel serves from then on */
} calls[] = {
	{"sync", by_sync, 0},
	{"syncfs", by_syncfs, 0},
	{"sync_file_range", by_sync_file_range, 0},
	{"fsync", by_fsync, 0},
	{"fdatasync", by_fdatasync, 0},
	{"flock", by_flock, 0},
	{"lockf", by_lockf, 0},
	{"F_SETLK", by_setlk, 0},
	{"F_OFD_SETLKW", by_ofd_setlk, 0},
	{"F_OFD_SETLK, unlock", by_ofd_unlock, 0},
	{"ioctl", by_ioctl, 0},
	{"rename", by_rename, 0},
	{"link", by_link, 0},
	{"ioctl by number", by_raw_ioctl, 0},
	{"sync_file_range by number", by_raw_sync, 0},
	{"mmap", by_mmap, 1},
};

int main(void)
{
	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0 && (other = open("o", O_RDWR | O_CREAT, 0644)) >= 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (int round = 0; round < (i ? 20 : 1); round++) {
			put(fd, (unsigned)i, size, 300);
			size += 300;
			CHECK(calls[i].call() == 0);
			if (unseen_size(fd) != size) {
				fprintf(stderr, "after %s others see %lld bytes instead of %lld\n", calls[i].name,
					(long long)unseen_size(fd), (long long)size);
				return 1;
			}
		}
		if (calls[i].file) {
			CHECK(close(fd) == 0 && unlink("f") == 0 && (fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
			size = 0;
		}
	}
	return 0;
}
