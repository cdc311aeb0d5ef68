/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every metadata call, one at a time, for test_metadata. A program like any other: it knows nothing of the library.
 *
 *   ops list                     the names
 *   ops run NAME IMAGE COPY      in the working directory: prepare, sync, the call, and at once a copy of the device's image
 *   ops deny NAME                prepare, then let every sync fail with EIO, and the call: exit 3 when it fails with EIO
 *   ops check NAME               in the working directory as a crash left it: exit 0 when the effect of the call is there, 1 not
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NOBODY 65534
#define TIME   1000000000

struct op {
	const char *name;
	void (*prepare)(void); /* or NULL */
	int (*call)(void);     /* as the C library's calls: -1 is failure */
	int (*there)(void);
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "ops: %s: %s\n", what, strerror(errno));
	exit(2);
}

/* ---- what is there */

static int mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -1 : (int)st.st_mode;
}

static int exists(const char *path)
{
	return mode_of(path) != -1;
}

static int has_mode(const char *path, int mode)
{
	return exists(path) && (mode_of(path) & 07777) == mode;
}

static int has_uid(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_uid == NOBODY;
}

static int has_size(const char *path, off_t size)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_size == size;
}

static int has_time(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_mtim.tv_sec == TIME;
}

static int has_xattr(const char *path)
{
	char c;

	return lgetxattr(path, "trusted.x", &c, 1) == 1 && c == 'v';
}

/* ---- what is there before */

static int made(int fd)
{
	return fd < 0 ? -1 : close(fd);
}

static void file(const char *path)
{
	static const char block[5000];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	need(fd >= 0 && write(fd, block, sizeof(block)) == sizeof(block) && close(fd) == 0, path);
}

static void f(void)
{
	file("f");
}

static void f_and_g(void)
{
	file("f");
	need(chmod("f", 0600) == 0, "chmod");
	file("g");
}

static void dir(void)
{
	need(mkdir("d", 0755) == 0, "mkdir");
}

static void two_dirs(void)
{
	need(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0, "mkdir");
	file("a/f");
}

static void dir_in_dir(void)
{
	need(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("a/d", 0755) == 0, "mkdir");
}

static void fifo(void)
{
	need(mkfifo("p", 0644) == 0, "mkfifo");
}

static void link_to_f(void)
{
	file("f");
	need(symlink("f", "l") == 0, "symlink");
}

static void link_to_dir(void)
{
	dir();
	need(symlink("d", "l") == 0, "symlink");
}

static void f_with_xattr(void)
{
	file("f");
	need(setxattr("f", "trusted.x", "v", 1, 0) == 0, "setxattr");
}

/* A directory that its user may write and search but not list, and from now on that user. */
static void unlistable(void)
{
	need(mkdir("d", 0755) == 0 && chown("d", NOBODY, NOBODY) == 0 && chmod("d", 0300) == 0, "mkdir");
}

static void unreadable(void)
{
	file("f");
	need(chown("f", NOBODY, NOBODY) == 0 && chmod("f", 0) == 0, "chmod");
}

static int as_nobody(void)
{
	return setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY);
}

/* ---- the calls and their effects */

#define OP(name, before, run, after)                                                                                           \
	static int call_##name(void)                                                                                           \
	{                                                                                                                      \
		return run;                                                                                                    \
	}                                                                                                                      \
	static int there_##name(void)                                                                                          \
	{                                                                                                                      \
		return after;                                                                                                  \
	}

static int path_fd(const char *path)
{
	return open(path, O_PATH | O_NOFOLLOW);
}

static int tmpfile_at(const char *how)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0644);
	char path[64];

	need(fd >= 0 && write(fd, "data", 4) == 4, "O_TMPFILE");
	if (strcmp(how, "fd") == 0)
		return linkat(fd, "", AT_FDCWD, "n", AT_EMPTY_PATH);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, AT_FDCWD, "n", AT_SYMLINK_FOLLOW);
}

static int mkstemp_n(int which)
{
	char t[] = "tXXXXXXx";

	t[7] = which == 0 ? 0 : 'x';
	return made(which == 0 ? mkstemp(t) : mkstemps(t, 1));
}

static int begins_t(void)
{
	char command[] = "ls | grep -q ^t";

	return system(command) == 0;
}

static int mkdtemp_n(void)
{
	char t[] = "tXXXXXX";

	return mkdtemp(t) ? 0 : -1;
}

static int openat2_n(void)
{
	struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 0644};

	return made((int)syscall(SYS_openat2, AT_FDCWD, "n", &how, sizeof(how)));
}

static int openat_d(void)
{
	int d = open("d", O_RDONLY | O_DIRECTORY);

	return made(openat(d, "n", O_CREAT | O_WRONLY, 0644));
}

static int fopen_n(const char *mode)
{
	FILE *s = fopen("n", mode);

	return s ? fclose(s) : -1;
}

static int ftruncate_f(off_t n)
{
	int fd = open("f", O_RDWR);

	return fd < 0 || ftruncate(fd, n) < 0 ? -1 : close(fd);
}

static int fallocate_f(int mode, off_t off, off_t n)
{
	int fd = open("f", O_RDWR);

	return fd < 0 || fallocate(fd, mode, off, n) < 0 ? -1 : close(fd);
}

static int posix_fallocate_f(void)
{
	int fd = open("f", O_RDWR), err = posix_fallocate(fd, 0, 300000);

	errno = err;
	return err ? -1 : close(fd);
}

static int punched(void)
{
	struct stat st;

	return stat("f", &st) == 0 && st.st_size == 5000 && st.st_blocks * 512 < 8192;
}

static int by_fd(int (*call)(int fd))
{
	int fd = open("f", O_RDONLY), r;

	need(fd >= 0, "open");
	r = call(fd);
	return r < 0 ? r : close(fd);
}

static int fchmod_(int fd)
{
	return fchmod(fd, 0711);
}

static int fchown_(int fd)
{
	return fchown(fd, NOBODY, NOBODY);
}

static int fsetxattr_(int fd)
{
	return fsetxattr(fd, "trusted.x", "v", 1, 0);
}

static int fremovexattr_(int fd)
{
	return fremovexattr(fd, "trusted.x");
}

static int futimens_(int fd)
{
	return futimens(fd, (const struct timespec[2]){{TIME, 0}, {TIME, 0}});
}

static int futimes_(int fd)
{
	return futimes(fd, (const struct timeval[2]){{TIME, 0}, {TIME, 0}});
}

/* A path of the greatest length there is. */
static int long_path(void)
{
	char path[4096];

	memset(path, '/', sizeof(path));
	for (size_t i = 0; i + 2 < sizeof(path); i += 2)
		path[i] = '.';
	strcpy(path + sizeof(path) - 2, "n");
	return mkdir(path, 0755);
}

static int chrooted(void)
{
	return chroot("d") || chdir("/") ? -1 : mkdir("/n", 0755);
}

static int changed_dir(void)
{
	return chdir("d") ? -1 : mkdir("n", 0755);
}

static int nobody_creates(void)
{
	return as_nobody() ? -1 : made(open("d/n", O_CREAT | O_WRONLY, 0644));
}

static int nobody_mkdir(void)
{
	return as_nobody() ? -1 : mkdir("d/n", 0755);
}

static int nobody_chmod(void)
{
	return as_nobody() ? -1 : chmod("f", 0100);
}

static const struct timespec then[2] = {{TIME, 0}, {TIME, 0}};
static const struct timeval then_us[2] = {{TIME, 0}, {TIME, 0}};

/* clang-format off */
#define OPS(X) \
	X(open, NULL, made(open("n", O_CREAT | O_WRONLY, 0644)), exists("n")) \
	X(open_rdonly, NULL, made(open("n", O_CREAT | O_RDONLY, 0644)), exists("n")) \
	X(open_excl, NULL, made(open("n", O_CREAT | O_EXCL | O_RDWR, 0644)), exists("n")) \
	X(creat, NULL, made(creat("n", 0644)), exists("n")) \
	X(openat, dir, openat_d(), exists("d/n")) \
	X(openat2, NULL, openat2_n(), exists("n")) \
	X(open_by_number, NULL, made((int)syscall(SYS_open, "n", O_CREAT | O_WRONLY, 0644)), exists("n")) \
	X(open_trunc, f, made(open("f", O_WRONLY | O_TRUNC)), has_size("f", 0)) \
	X(mkstemp, NULL, mkstemp_n(0), begins_t()) \
	X(mkstemps, NULL, mkstemp_n(1), begins_t()) \
	X(mkdtemp, NULL, mkdtemp_n(), begins_t()) \
	X(fopen_w, NULL, fopen_n("w"), exists("n")) \
	X(fopen_a, NULL, fopen_n("a"), exists("n")) \
	X(tmpfile_proc, NULL, tmpfile_at("proc"), exists("n")) \
	X(tmpfile_fd, NULL, tmpfile_at("fd"), exists("n")) \
	X(link, f, link("f", "n"), exists("n")) \
	X(link_across, two_dirs, link("a/f", "b/n"), exists("b/n")) \
	X(symlink, NULL, symlink("x", "n"), exists("n")) \
	X(symlinkat, dir, symlinkat("x", open("d", O_PATH), "n"), exists("d/n")) \
	X(unlink, f, unlink("f"), !exists("f")) \
	X(unlinkat, dir_in_dir, unlinkat(open("a", O_RDONLY), "d", AT_REMOVEDIR), !exists("a/d")) \
	X(remove_file, f, remove("f"), !exists("f")) \
	X(remove_dir, dir, remove("d"), !exists("d")) \
	X(rename, f, rename("f", "n"), !exists("f") && exists("n")) \
	X(rename_over, f_and_g, rename("f", "g"), !exists("f") && has_mode("g", 0600)) \
	X(rename_across, two_dirs, rename("a/f", "b/f"), !exists("a/f") && exists("b/f")) \
	X(rename_dir_across, dir_in_dir, rename("a/d/", "b/d"), !exists("a/d") && exists("b/d")) \
	X(renameat, two_dirs, renameat(open("a", O_RDONLY), "f", open("b", O_PATH), "f"), !exists("a/f") && exists("b/f")) \
	X(renameat2_exchange, f_and_g, renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE), has_mode("g", 0600)) \
	X(rename_by_number, two_dirs, (int)syscall(SYS_rename, "a/f", "b/f"), !exists("a/f") && exists("b/f")) \
	X(mkdir, NULL, mkdir("n", 0755), exists("n")) \
	X(mkdir_slash, NULL, mkdir("n//", 0755), exists("n")) \
	X(mkdir_through_link, link_to_dir, mkdir("l/n", 0755), exists("d/n")) \
	X(mkdir_by_number, NULL, (int)syscall(SYS_mkdir, "n", 0755), exists("n")) \
	X(mkdir_long_path, NULL, long_path(), exists("n")) \
	X(mkdir_chrooted, dir, chrooted(), exists("d/n")) \
	X(mkdir_changed_dir, dir, changed_dir(), exists("d/n")) \
	X(mkdirat, dir, mkdirat(open("d", O_PATH), "n", 0755), exists("d/n")) \
	X(rmdir, dir, rmdir("d"), !exists("d")) \
	X(rmdir_slash, dir_in_dir, rmdir("a/d/"), !exists("a/d")) \
	X(mkfifo, NULL, mkfifo("n", 0644), exists("n")) \
	X(mknod, NULL, mknod("n", S_IFIFO | 0644, 0), exists("n")) \
	X(mknodat, dir, mknodat(open("d", O_PATH), "n", S_IFSOCK | 0644, 0), exists("d/n")) \
	X(truncate, f, truncate("f", 10), has_size("f", 10)) \
	X(truncate_by_number, f, (int)syscall(SYS_truncate, "f", 10), has_size("f", 10)) \
	X(truncate_grow, f, truncate("f", 1 << 20), has_size("f", 1 << 20)) \
	X(ftruncate, f, ftruncate_f(7), has_size("f", 7)) \
	X(fallocate, f, fallocate_f(0, 100, 900000), has_size("f", 900100)) \
	X(fallocate_punch, f, fallocate_f(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), punched()) \
	X(posix_fallocate, f, posix_fallocate_f(), has_size("f", 300000)) \
	X(chmod, f, chmod("f", 0711), has_mode("f", 0711)) \
	X(chmod_dir, dir, chmod("d", 0711), has_mode("d", 0711)) \
	X(chmod_fifo, fifo, chmod("p", 0711), has_mode("p", 0711)) \
	X(chmod_through_link, link_to_f, chmod("l", 0711), has_mode("f", 0711)) \
	X(chmod_by_number, f, (int)syscall(SYS_chmod, "f", 0711), has_mode("f", 0711)) \
	X(lchmod, f, lchmod("f", 0711), has_mode("f", 0711)) \
	X(fchmod, f, by_fd(fchmod_), has_mode("f", 0711)) \
	X(fchmodat, two_dirs, fchmodat(open("a", O_PATH), "f", 0711, 0), has_mode("a/f", 0711)) \
	X(chown, f, chown("f", NOBODY, NOBODY), has_uid("f")) \
	X(lchown_link, link_to_f, lchown("l", NOBODY, NOBODY), has_uid("l")) \
	X(fchown, f, by_fd(fchown_), has_uid("f")) \
	X(fchownat_path_fd, f, fchownat(path_fd("f"), "", NOBODY, NOBODY, AT_EMPTY_PATH), has_uid("f")) \
	X(fchownat_link, link_to_f, fchownat(AT_FDCWD, "l", NOBODY, NOBODY, AT_SYMLINK_NOFOLLOW), has_uid("l")) \
	X(setxattr, f, setxattr("f", "trusted.x", "v", 1, 0), has_xattr("f")) \
	X(lsetxattr_link, link_to_f, lsetxattr("l", "trusted.x", "v", 1, 0), has_xattr("l")) \
	X(fsetxattr, f, by_fd(fsetxattr_), has_xattr("f")) \
	X(setxattr_by_number, f, (int)syscall(SYS_setxattr, "f", "trusted.x", "v", 1, 0), has_xattr("f")) \
	X(removexattr, f_with_xattr, removexattr("f", "trusted.x"), exists("f") && !has_xattr("f")) \
	X(lremovexattr, f_with_xattr, lremovexattr("f", "trusted.x"), exists("f") && !has_xattr("f")) \
	X(fremovexattr, f_with_xattr, by_fd(fremovexattr_), exists("f") && !has_xattr("f")) \
	X(utimensat, f, utimensat(AT_FDCWD, "f", then, 0), has_time("f")) \
	X(utimensat_link, link_to_f, utimensat(AT_FDCWD, "l", then, AT_SYMLINK_NOFOLLOW), has_time("l")) \
	X(utimensat_by_number, f, (int)syscall(SYS_utimensat, AT_FDCWD, "f", then, 0), has_time("f")) \
	X(utimes, f, utimes("f", then_us), has_time("f")) \
	X(lutimes, link_to_f, lutimes("l", then_us), has_time("l")) \
	X(futimens, f, by_fd(futimens_), has_time("f")) \
	X(futimes, f, by_fd(futimes_), has_time("f")) \
	X(create_unlistable, unlistable, nobody_creates(), exists("d/n")) \
	X(mkdir_unlistable, unlistable, nobody_mkdir(), exists("d/n")) \
	X(chmod_unreadable, unreadable, nobody_chmod(), has_mode("f", 0100))
/* clang-format on */

OPS(OP)
#define ENTRY(name, before, run, after) {#name, before, call_##name, there_##name},
static const struct op ops[] = {OPS(ENTRY)};

/* ---- */

static void copy(int image, int to)
{
	static char buf[1 << 20];
	off_t from = 0, hole;

	while ((from = lseek(image, from, SEEK_DATA)) >= 0) {
		hole = lseek(image, from, SEEK_HOLE);
		while (from < hole) {
			const size_t most = (size_t)(hole - from) < sizeof(buf) ? (size_t)(hole - from) : sizeof(buf);
			const ssize_t n = pread(image, buf, most, from);

			need(n > 0 && pwrite(to, buf, (size_t)n, from) == n, "copy the image");
			from += n;
		}
	}
	need(ftruncate(to, lseek(image, 0, SEEK_END)) == 0, "copy the image");
}

/* What a power cut leaves is the image of one moment: one that was written to while it was copied is copied again. */
static void copy_at_rest(int image, int to)
{
	struct stat before, after;

	for (int i = 0; i < 50; i++) {
		need(fstat(image, &before) == 0 && ftruncate(to, 0) == 0, "copy the image");
		copy(image, to);
		need(fstat(image, &after) == 0, "copy the image");
		if (before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec)
			return;
	}
	need(0, "copy the image: it is written to all the time");
}

static void deny_sync(void)
{
	static const struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_syncfs, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
	};
	const struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), (struct sock_filter *)filter};

	need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0, "seccomp");
}

int main(int argc, char **argv)
{
	const struct op *op = NULL;
	int image = -1, to = -1, r;

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (argc == 2 && strcmp(argv[1], "list") == 0)
			puts(ops[i].name);
		else if (argc > 2 && strcmp(argv[2], ops[i].name) == 0)
			op = &ops[i];
	}
	if (!op)
		return argc == 2 ? 0 : 2;
	if (strcmp(argv[1], "check") == 0)
		return op->there() ? 0 : 1;
	if (op->prepare)
		op->prepare();
	if (argc == 5) {
		image = open(argv[3], O_RDONLY);
		to = open(argv[4], O_WRONLY | O_CREAT | O_TRUNC, 0600);
		need(image >= 0 && to >= 0, "open the images");
	}
	sync();
	if (argc == 3)
		deny_sync();
	errno = 0;
	r = op->call();
	if (argc == 3 && r < 0 && errno == EIO)
		return 3;
	need(r == 0, op->name);
	if (argc == 5)
		copy_at_rest(image, to);
	return 0;
}
