/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of every family on a file in the directory that is the first argument. Run over the counting core, which tells
 * whether each arrived where it should; also run plainly, so that it is known to be right. Builds with glibc and with musl.
 */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* headers of Linux before 5.9 */
#endif

#define CHECK(cond)                                                                                                            \
	do {                                                                                                                   \
		if (!(cond)) {                                                                                                 \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond, errno);                           \
			exit(1);                                                                                               \
		}                                                                                                              \
	} while (0)

extern char **environ;
ssize_t __pread64(int, void *, size_t, off_t) __attribute__((weak));
ssize_t __read_chk(int, void *, size_t, size_t) __attribute__((weak));
int __open64_2(const char *, int) __attribute__((weak));
int __xstat(int, const char *, struct stat *) __attribute__((weak));

static void data(void)
{
	char buf[64];
	struct iovec iov[2] = {{buf, 3}, {buf + 3, 3}};
	struct stat st;
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0640);

	CHECK(fd >= 0);
	errno = 4242; /* kept by every call that succeeds */
	CHECK(write(fd, "0123456789", 10) == 10);
	CHECK(pwrite(fd, "ab", 2, 10) == 2);
	CHECK(lseek(fd, 1, SEEK_SET) == 1);
	CHECK(read(fd, buf, 2) == 2 && buf[0] == '1');
	CHECK(pread(fd, buf, 12, 0) == 12 && !memcmp(buf, "0123456789ab", 12));
	CHECK(readv(fd, iov, 2) == 6 && !memcmp(buf, "345678", 6));
	CHECK(writev(fd, iov, 2) == 6);
	CHECK(preadv(fd, iov, 2, 9) == 6 && !memcmp(buf, "345678", 6));
	CHECK(pwritev(fd, iov, 2, 20) == 6);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 26 && (st.st_mode & 0777) == 0640);
	CHECK(stat("f", &st) == 0 && st.st_size == 26);
	CHECK(lstat("f", &st) == 0 && fstatat(AT_FDCWD, "f", &st, 0) == 0);
	CHECK(ftruncate(fd, 5) == 0 && truncate("f", 4) == 0);
	CHECK(posix_fallocate(fd, 0, 8) == 0 && fstat(fd, &st) == 0 && st.st_size == 8);
	CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
	CHECK(flock(fd, LOCK_EX) == 0 && flock(fd, LOCK_UN) == 0);
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && lockf(fd, F_LOCK, 0) == 0 && lockf(fd, F_ULOCK, 0) == 0);
	CHECK(dprintf(fd, "%d-%s", 12, "x") == 4);
	CHECK(pread(fd, buf, 4, 0) == 4 && !memcmp(buf, "12-x", 4));
	CHECK(errno == 4242);
	if (__pread64)
		CHECK(__pread64(fd, buf, 4, 0) == 4);
	if (__read_chk)
		CHECK(__read_chk(fd, buf, 4, sizeof(buf)) == 4);
	if (__open64_2) {
		int two = __open64_2("f", O_RDONLY);

		CHECK(two >= 0 && close(two) == 0);
	}
	if (__xstat)
		CHECK(__xstat(1, "f", &st) == 0 && st.st_size == 8);
	CHECK(pread(fd, buf, 1, -1) == -1 && errno == EINVAL);
	CHECK(preadv(fd, iov, 2, -5) == -1 && errno == EINVAL);
	CHECK(close(fd) == 0);
	CHECK(close(fd) == -1 && errno == EBADF);
	CHECK(open("missing/f", O_RDONLY) == -1 && errno == ENOENT);
}

static void descriptors(void)
{
	int fd = open("f", O_RDWR), two, flags;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	CHECK((two = dup(fd)) >= 0 && close(two) == 0);
	CHECK(dup2(fd, 100) == 100 && dup3(fd, 101, O_CLOEXEC) == 101 && dup2(fd, fd) == fd);
	CHECK(dup3(fd, fd, 0) == -1 && errno == EINVAL);
	CHECK(dup2(fd, -1) == -1 && errno == EBADF);
	CHECK((two = fcntl(fd, F_DUPFD, 200)) >= 200);
	CHECK((two = fcntl(fd, F_DUPFD_CLOEXEC, 200)) > 200 && fcntl(two, F_GETFD) == FD_CLOEXEC);
	CHECK((flags = fcntl(fd, F_GETFL)) >= 0 && fcntl(fd, F_SETFL, flags | O_APPEND) == 0);
	CHECK(fcntl(fd, F_SETLK, &lock) == 0);
	CHECK(syscall(SYS_close_range, 100, 300, 0) == 0 && fcntl(100, F_GETFD) == -1);
	CHECK(ioctl(fd, FIONREAD, &flags) == 0);
	CHECK(close(fd) == 0);
}

static int seen;
static int see(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path, (void)st, (void)type, (void)ftw;
	seen++;
	return 0;
}

static void names(void)
{
	struct timespec now[2] = {{1, 0}, {2, 0}};
	char template[] = "tXXXXXX";
	struct stat st;
	int fd;

	CHECK(rename("f", "g") == 0 && renameat(AT_FDCWD, "g", AT_FDCWD, "f") == 0);
	CHECK(link("f", "h") == 0 && unlink("h") == 0 && linkat(AT_FDCWD, "f", AT_FDCWD, "h", 0) == 0);
	CHECK(unlinkat(AT_FDCWD, "h", 0) == 0 && symlink("f", "s") == 0 && remove("s") == 0);
	CHECK(mkdir("d", 0755) == 0 && rmdir("d") == 0 && mkfifo("p", 0600) == 0 && remove("p") == 0);
	CHECK(chmod("f", 0600) == 0 && utimensat(AT_FDCWD, "f", now, 0) == 0 && stat("f", &st) == 0 && st.st_mtime == 2);
	CHECK((fd = mkstemp(template)) >= 0 && futimens(fd, now) == 0 && fchmod(fd, 0600) == 0);
	CHECK(write(fd, "x", 1) == 1 && close(fd) == 0 && unlink(template) == 0);
	CHECK(nftw(".", see, 4, 0) == 0 && seen >= 2);
}

static void moved(void)
{
	int in = open("f", O_RDWR), out = open("g", O_RDWR | O_CREAT | O_TRUNC, 0600), pair[2];
	struct iovec iov = {"x", 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	char *map;
	int got;

	CHECK(copy_file_range(in, NULL, out, NULL, 4, 0) == 4);
	CHECK(sendfile(out, in, NULL, 4) == 4);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, out, 0);
	CHECK(map != MAP_FAILED && !memcmp(map, "12-x", 4) && munmap(map, 4096) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &in, sizeof(int));
	CHECK(sendmsg(pair[0], &msg, 0) == 1);
	msg.msg_iov->iov_base = (char[1]){0};
	CHECK(recvmsg(pair[1], &msg, 0) == 1);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	CHECK(fcntl(got, F_GETFL) >= 0 && close(got) == 0 && close(in) == 0 && close(out) == 0);
}

static void streams(void)
{
	FILE *f = fopen("s", "w+");
	char line[32];
	int fd;

	CHECK(f && fprintf(f, "line %d\n", 1) == 7 && fflush(f) == 0);
	rewind(f);
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "line 1\n") && fclose(f) == 0);
	CHECK((fd = open("s", O_WRONLY | O_APPEND)) >= 0 && (f = fdopen(fd, "a")) && fputs("line 2\n", f) >= 0);
	CHECK((f = freopen("s", "r", f)) && fgets(line, sizeof(line), f) && fgets(line, sizeof(line), f));
	CHECK(!strcmp(line, "line 2\n") && fclose(f) == 0 && (f = tmpfile()) && fclose(f) == 0);
	CHECK(fopen("missing/f", "r") == NULL && errno == ENOENT);
}

static void asynchronous(void)
{
	struct aiocb cb = {.aio_fildes = open("f", O_RDWR), .aio_buf = "zz", .aio_nbytes = 2};

	CHECK(aio_write(&cb) == 0);
	while (aio_error(&cb) == EINPROGRESS)
		usleep(100);
	CHECK(aio_return(&cb) == 2 && close(cb.aio_fildes) == 0);
}

static void by_number(void)
{
	long fd = syscall(SYS_openat, AT_FDCWD, "f", O_RDWR | O_CREAT, 0600L);
	char c = 0;

	CHECK(fd >= 0 && syscall(SYS_pwrite64, fd, "q", 1L, 0L) == 1 && syscall(SYS_pread64, fd, &c, 1L, 0L) == 1 && c == 'q');
	CHECK(syscall(SYS_close, fd) == 0 && syscall(SYS_close, fd) == -1 && errno == EBADF);
}

static int wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void processes(void)
{
	char *const args[] = {"sh", "-c", "exit 7", NULL};
	FILE *f;
	pid_t pid;

	if ((pid = fork()) == 0)
		_exit(3);
	CHECK(wait_for(pid) == 3);
	if ((pid = vfork()) == 0)
		_exit(4);
	CHECK(wait_for(pid) == 4);
	if ((pid = vfork()) == 0) {
		execl("/bin/sh", "sh", "-c", "exit $X", NULL);
		_exit(127);
	}
	CHECK(wait_for(pid) == 0);
	if ((pid = fork()) == 0) {
		char *env[] = {"X=9", NULL};

		execle("/bin/sh", "sh", "-c", "exit $X", NULL, env);
		_exit(127);
	}
	CHECK(wait_for(pid) == 9);
	if ((pid = fork()) == 0) {
		execlp("sh", "sh", "-c", "exit 6", NULL);
		_exit(127);
	}
	CHECK(wait_for(pid) == 6);
	CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, args, environ) == 0 && wait_for(pid) == 7);
	CHECK(posix_spawnp(&pid, "sh", NULL, NULL, args, environ) == 0 && wait_for(pid) == 7);
	CHECK(WEXITSTATUS(system("exit 5")) == 5);
	CHECK((f = popen("exit 8", "r")) && WEXITSTATUS(pclose(f)) == 8);
	execl("missing", "missing", NULL);
	CHECK(errno == ENOENT);
}

static int cancel_fd;
static void *write_forever(void *arg)
{
	for (;;)
		if (write(cancel_fd, arg, 1) != 1 || lseek(cancel_fd, 0, SEEK_SET) != 0)
			return NULL;
}
static void *read_pipe(void *arg)
{
	char c;

	return read(*(int *)arg, &c, 1) == 1 ? arg : NULL;
}

static void cancellation(void)
{
	pthread_t t;
	void *result;
	int fds[2];

	CHECK(pipe(fds) == 0 && pthread_create(&t, NULL, read_pipe, fds) == 0);
	usleep(10000);
	CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
	CHECK((cancel_fd = open("c", O_RDWR | O_CREAT, 0600)) >= 0 && pthread_create(&t, NULL, write_forever, "x") == 0);
	usleep(10000);
	CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
	CHECK(close(cancel_fd) == 0);
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc != 2 || chdir(argv[1]) < 0) {
		fprintf(stderr, "usage: calls DIR\n");
		return 2;
	}
	data();
	descriptors();
	moved();
	names();
	streams();
	asynchronous();
	by_number();
	processes();
	cancellation();
	return 0;
}
