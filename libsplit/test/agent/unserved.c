/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a file for writing in one way, writes a byte to it, and says what came of it: "ok", or the error. `unserved WAY FILE`.
 * Ways: libc, raw (a system call of the program's own), openat2, compat (a system call of a 32-bit program), threads (from eight at
 * once), children (by fork, vfork and exec, many times), stdio, mkstemp, tmpfile, read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS	150
#define THREADS 8

static const char *file;
static int failed; /* atomic; the last error */

static long raw(long nr, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;

	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return r;
}

static int result(long fd)
{
	if (fd < 0)
		return errno ? -errno : -1;
	if (write((int)fd, "x", 1) != 1)
		return -errno;
	close((int)fd);
	return 0;
}

static long from_kernel(long r)
{
	errno = r < 0 ? (int)-r : 0;
	return r < 0 ? -1 : r;
}

static int by_libc(void)
{
	return result(open(file, O_WRONLY | O_CREAT | O_APPEND, 0644));
}

static int by_raw(void)
{
	return result(from_kernel(raw(SYS_openat, AT_FDCWD, (long)file, O_WRONLY | O_CREAT | O_APPEND, 0644)));
}

static int by_openat2(void)
{
	struct open_how how = {.flags = O_WRONLY};

	return result(from_kernel(raw(SYS_openat2, AT_FDCWD, (long)file, (long)&how, sizeof(how))));
}

static int to_read(void)
{
	struct open_how how = {.flags = O_RDONLY};
	const long fd = from_kernel(raw(SYS_openat2, AT_FDCWD, (long)file, (long)&how, sizeof(how)));
	char c;

	return fd >= 0 && read((int)fd, &c, 1) >= 0 ? 0 : -errno;
}

/* open(2) by the interrupt of 32-bit programs; the path has to be below 4 GiB, so the program is linked there. */
static int by_compat(void)
{
	static char path[256];
	long r;

	snprintf(path, sizeof(path), "%s", file);
	if ((unsigned long)path >> 32)
		return -ENOTSUP;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(5), "b"(path), "c"(O_WRONLY), "d"(0) : "memory", "r8", "r9", "r10", "r11");
	return result(from_kernel((int)r));
}

static void *thread(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		char path[256];
		int fd;

		snprintf(path, sizeof(path), "%s.%ld.%d", file, (long)arg, i % 4);
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
		if (fd < 0 || write(fd, "x", 1) != 1)
			__atomic_store_n(&failed, -errno, __ATOMIC_RELAXED);
		close(fd);
	}
	return NULL;
}

static int by_threads(void)
{
	pthread_t t[THREADS];

	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, thread, (void *)i))
			return -EAGAIN;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	return failed;
}

/* Each child's first call is an open, before it has said HELLO to anybody. */
static int by_children(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		const pid_t pid = i % 3 == 0 ? vfork() : fork();
		int status;

		if (pid == 0 && i % 3 == 1)
			_exit(-by_libc());
		if (pid == 0) {
			execl("/proc/self/exe", "unserved", "child", file, (char *)NULL);
			_exit(99);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return -errno;
		if (status)
			return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
	}
	return 0;
}

static int by_stdio(void)
{
	FILE *f = fopen(file, "a");

	return f && fputs("x", f) >= 0 && fclose(f) == 0 ? 0 : -errno;
}

static int by_mkstemp(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s.XXXXXX", file);
	return result(mkstemp(path));
}

static int by_tmpfile(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s", file);
	*strrchr(path, '/') = 0;
	return result(open(path, O_TMPFILE | O_WRONLY, 0600));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*open)(void);
	} ways[] = {{"libc", by_libc},	     {"raw", by_raw},		{"openat2", by_openat2}, {"compat", by_compat},
		    {"threads", by_threads}, {"children", by_children}, {"stdio", by_stdio},	 {"mkstemp", by_mkstemp},
		    {"tmpfile", by_tmpfile}, {"read", to_read}};

	file = argc == 3 ? argv[2] : "";
	if (argc == 3 && strcmp(argv[1], "child") == 0)
		return -by_libc();
	for (size_t i = 0; argc == 3 && i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (strcmp(argv[1], ways[i].name) == 0) {
			const int r = ways[i].open();

			/* Where the C library's stream may be a file of the volume, a plain write. */
			dprintf(1, "%s\n", r == 0 ? "ok" : strerrorname_np(-r));
			return r ? 1 : 0;
		}
	}
	return 2;
}
