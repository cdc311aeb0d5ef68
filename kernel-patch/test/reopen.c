// SPDX-License-Identifier: GPL-2.0
/* EXT4_IOC_REOPEN: what it opens, what it refuses, and who is asked and told. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../uapi/ext4_reopen.h"
#include "testlib.h"

#define B env.block

static struct file file;

static struct ext4_reopen args(const char *path, unsigned int flags)
{
	return (struct ext4_reopen){.version = EXT4_REOPEN_VERSION, .flags = flags, .dirfd = AT_FDCWD, .path = (uintptr_t)path};
}

/* The new descriptor, or a negative errno. */
static int call(int fd, struct ext4_reopen r)
{
	const int new = ioctl(fd, EXT4_IOC_REOPEN, &r);

	return new < 0 ? -errno : new;
}

static int reopen(const char *path, unsigned int flags)
{
	return call(file.fd, args(path, flags));
}

static const char parameter[] = "/sys/module/ext4_splitfs/parameters/reopen";

/* Not all lines of kernels have the call. */
static bool is_there(void)
{
	return access(parameter, F_OK) == 0;
}

static void allow(bool yes)
{
	FILE *f = fopen(parameter, "w");

	check(f && fputs(yes ? "1\n" : "0\n", f) >= 0 && fclose(f) == 0, "the module's parameter");
}

static void one_file(void)
{
	if (!is_there())
		skip("this kernel's module has no EXT4_IOC_REOPEN");
	allow(true);
	file = file_new("target", 4 * B);
	file_write(&file, 0, 2 * B + 5, 1);
}

static void refused(int expected, int result, const char *what)
{
	check(result == -expected, "%s: %d (%s), not %d (%s)", what, result, strerror(-result), -expected, strerror(expected));
}

/* What fd reads and is, beside an open(2) of the same name. */
static void same_as_open(const char *name, int flags)
{
	const int plain = open(name, flags), new = reopen(name, (unsigned int)flags);
	char here[64], there[64], path[2][256] = {"", ""};
	struct stat a, b;

	check(plain >= 0 && new >= 0, "%s: open %d, reopen %d", name, plain, new);
	check(fstat(plain, &a) == 0 && fstat(new, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev, "another file");
	check(fcntl(plain, F_GETFL) == fcntl(new, F_GETFL), "%s: flags %#x, reopened %#x", name, fcntl(plain, F_GETFL),
	      fcntl(new, F_GETFL));
	check(fcntl(plain, F_GETFD) == fcntl(new, F_GETFD), "FD_CLOEXEC");
	snprintf(here, sizeof(here), "/proc/self/fd/%d", plain);
	snprintf(there, sizeof(there), "/proc/self/fd/%d", new);
	check(readlink(here, path[0], 255) > 0 && readlink(there, path[1], 255) > 0 && !strcmp(path[0], path[1]), "%s and %s",
	      path[0], path[1]);
	if ((flags & O_ACCMODE) == O_RDONLY)
		check(write(new, "x", 1) < 0 && errno == EBADF, "written to");
	if ((flags & O_ACCMODE) == O_WRONLY)
		check(read(new, here, 1) < 0 && errno == EBADF, "read");
	close(plain);
	close(new);
}

/* Unless somebody has switched it on there is no such call (the module is loaded without parameters; test/run looks at that). */
static void is_off(void)
{
	int fd;

	if (geteuid() != 0)
		skip("needs root");
	if (!is_there()) {
		file = file_new("target", B);
		check(call(file.fd, args("target", O_RDWR)) == -ENOTTY, "not there");
		return;
	}
	one_file();
	allow(false);
	check(call(file.fd, args("target", O_RDWR)) == -ENOTTY, "switched off");
	allow(true);
	fd = call(file.fd, args("target", O_RDWR));
	check(fd >= 0, "switched on: %s", strerror(-fd));
	close(fd);
}

static void opens(void)
{
	uint8_t *bytes;
	int fd, other;

	one_file();
	bytes = malloc(file.room);
	check(bytes, "memory");
	check(symlink("target", "reopen-symlink") == 0 || errno == EEXIST, "symlink: %s", strerror(errno));
	unlink("reopen-link");
	check(link("target", "reopen-link") == 0, "link: %s", strerror(errno));
	for (int i = 0; i < 3; i++) {
		const char *name = ((const char *[]){"target", "reopen-symlink", "reopen-link"})[i];

		same_as_open(name, O_RDONLY);
		same_as_open(name, O_RDONLY | O_CLOEXEC);
		same_as_open(name, O_WRONLY | O_APPEND);
		same_as_open(name, O_RDWR | O_NONBLOCK);
		same_as_open(name, O_RDWR | O_DSYNC | O_CLOEXEC);
		same_as_open(name, O_RDWR | O_SYNC);
	}
	/* A description of its own: offset and lock. */
	check(lseek(file.fd, 7, SEEK_SET) == 7 && flock(file.fd, LOCK_EX) == 0, "seek and lock");
	fd = reopen("target", O_RDWR);
	check(fd >= 0 && lseek(fd, 0, SEEK_CUR) == 0, "an offset of its own");
	check(flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK, "a lock of its own");
	check(read(fd, bytes, file.room) == (ssize_t)file.size && !memcmp(bytes, file.bytes, file.size), "content");
	check(lseek(file.fd, 0, SEEK_CUR) == 7, "the other one has moved");
	/* As good for the next as the first was. */
	other = call(fd, args("target", O_RDONLY));
	check(other >= 0 && read(other, bytes, 1) == 1 && bytes[0] == file.bytes[0], "of a reopened one: %d", other);
	close(other);
	close(fd);
	unlink("reopen-link");
	unlink("reopen-symlink");
	free(bytes);
	file_verify(&file, "reopened");
}

static void refuses(void)
{
	struct ext4_reopen r;
	struct rlimit limit;
	int fd, attr = 0;

	one_file();
	r = args("target", O_RDONLY);
	r.version++;
	refused(EINVAL, call(file.fd, r), "a version of the future");
	r = args("target", O_RDONLY);
	r.reserved = 1;
	refused(EINVAL, call(file.fd, r), "a reserved field");
	refused(EINVAL, reopen("target", O_ACCMODE), "no access mode");
	for (int i = 0; i < 7; i++)
		refused(EINVAL,
			reopen("target", (unsigned int)((const int[]){O_CREAT, O_EXCL, O_TRUNC, O_DIRECT, O_PATH, O_TMPFILE,
								      1 << 26})[i]),
			"a flag it does not have");
	refused(ENOENT, reopen("there-is-none", O_RDONLY), "no such name");
	refused(ESTALE, reopen(".", O_RDONLY), "another file's name");
	refused(EFAULT, reopen((const char *)16, O_RDONLY), "a bad name");
	check(ioctl(file.fd, EXT4_IOC_REOPEN, NULL) < 0 && errno == EFAULT, "a bad structure: %s", strerror(errno));
	r = args("target", O_RDONLY);
	r.dirfd = file.fd;
	refused(ENOTDIR, call(file.fd, r), "a directory that is none");
	fd = open(".", O_RDONLY);
	refused(EINVAL, call(fd, args(".", O_RDONLY)), "a directory");
	close(fd);
	fd = open("target", O_RDONLY);
	refused(EBADF, call(fd, args("target", O_RDWR)), "more access than the descriptor has");
	refused(EBADF, call(fd, args("target", O_WRONLY)), "other access than the descriptor has");
	close(fd);
	fd = open("target", O_RDWR | O_APPEND);
	refused(EBADF, call(fd, args("target", O_RDWR)), "writing anywhere, by one that appends");
	check(call(fd, args("target", O_RDONLY)) >= 0, "reading, by one that appends");
	close(fd);
	fd = open("target", O_WRONLY);
	refused(EBADF, call(fd, args("target", O_RDONLY)), "reading");
	close(fd);

	check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
	limit.rlim_cur = (rlim_t)file.fd + 1;
	fd = dup(file.fd); /* lower numbers may be free: */
	while (fd >= 0 && fd < file.fd)
		fd = dup(file.fd);
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	refused(EMFILE, reopen("target", O_RDONLY), "no number left");
	limit.rlim_cur = limit.rlim_max;
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");

	if (geteuid() != 0)
		return;
	check(ioctl(file.fd, FS_IOC_GETFLAGS, &attr) == 0, "attributes");
	attr |= FS_APPEND_FL;
	check(ioctl(file.fd, FS_IOC_SETFLAGS, &attr) == 0, "append-only: %s", strerror(errno));
	refused(EPERM, reopen("target", O_RDWR), "append-only");
	fd = reopen("target", O_RDWR | O_APPEND);
	check(fd >= 0, "append-only, to append: %d", fd);
	close(fd);
	attr = (attr & ~FS_APPEND_FL) | FS_IMMUTABLE_FL;
	check(ioctl(file.fd, FS_IOC_SETFLAGS, &attr) == 0, "immutable: %s", strerror(errno));
	refused(EPERM, reopen("target", O_RDWR), "immutable");
	attr &= ~FS_IMMUTABLE_FL;
	check(ioctl(file.fd, FS_IOC_SETFLAGS, &attr) == 0, "mutable: %s", strerror(errno));
}

/* The right to open is looked at anew: of the file, of the way to it, and of the mount. */
static void looks_at_rights(void)
{
	if (geteuid() != 0)
		skip("needs root");
	one_file();
	check(mkdir("reopen-dir", 0700) == 0 || errno == EEXIST, "mkdir: %s", strerror(errno));
	check(mount(".", "reopen-dir", NULL, MS_BIND, NULL) == 0 &&
		      mount(NULL, "reopen-dir", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0,
	      "mount: %s", strerror(errno));
	refused(EROFS, reopen("reopen-dir/target", O_RDWR), "a mount that is read-only");
	check(reopen("reopen-dir/target", O_RDONLY) >= 0, "there, to read");
	check(umount2("reopen-dir", MNT_DETACH) == 0 && rmdir("reopen-dir") == 0, "umount: %s", strerror(errno));

	check(mkdir("reopen-dir", 0700) == 0 && link("target", "reopen-dir/link") == 0, "link: %s", strerror(errno));
	check(fchmod(file.fd, 0444) == 0 && chmod(".", 0755) == 0, "chmod");
	check(setegid(65534) == 0 && seteuid(65534) == 0, "setuid");
	refused(EACCES, reopen("target", O_RDWR), "no right to write");
	check(reopen("target", O_RDONLY) >= 0, "the right to read");
	refused(EACCES, reopen("reopen-dir/link", O_RDONLY), "no right to the directory");
	check(seteuid(0) == 0 && setegid(0) == 0, "setuid");
	unlink("reopen-dir/link");
	rmdir("reopen-dir");
}

/* Who guards the file's opening is not asked; who watches it is told. */
static void asks_nobody(void)
{
	const int guard = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY);
	const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct pollfd asked = {guard, POLLIN, 0};
	struct inotify_event told[8];
	int status, fd;
	pid_t pid;

	if (guard < 0)
		skip("fanotify: %s", strerror(errno));
	one_file();
	check(inotify_add_watch(watch, "target", IN_OPEN | IN_MODIFY | IN_CLOSE_WRITE) >= 0, "inotify: %s", strerror(errno));
	check(fanotify_mark(guard, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, "target") == 0, "fanotify: %s", strerror(errno));
	fd = reopen("target", O_RDWR);
	check(fd >= 0, "reopen: %d", fd);
	check(pwrite(fd, file.bytes, 1, 0) == 1 && close(fd) == 0, "write: %s", strerror(errno));
	check(poll(&asked, 1, 0) == 0, "the guard was asked");
	check(read(watch, told, sizeof(told)) == 3 * sizeof(told[0]) && told[0].mask == IN_OPEN && told[1].mask == IN_MODIFY &&
		      told[2].mask == IN_CLOSE_WRITE,
	      "the watcher was told %#x, %#x, %#x", told[0].mask, told[1].mask, told[2].mask);

	/* The control: open(2) waits for the answer. */
	pid = fork();
	if (pid == 0)
		_exit(open("target", O_RDWR) < 0);
	check(poll(&asked, 1, 10000) == 1, "the guard is not asked by open either");
	kill(pid, SIGKILL);
	close(guard);
	waitpid(pid, &status, 0);
}

const struct test_case reopen_cases[] = {{"reopen_is_off", is_off},	 {"reopen_opens", opens},
					 {"reopen_refuses", refuses},	 {"reopen_rights", looks_at_rights},
					 {"reopen_guards", asks_nobody}, {0}};
