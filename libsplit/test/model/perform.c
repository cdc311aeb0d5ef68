/* SPDX-License-Identifier: Apache-2.0 */
/* One operation, as a program that knows nothing of the library makes it, and what that program sees of it. */
#include "perform.h"
#include "splitfs.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAP_LEN (256 << 10)
#define BUF_MAX (1 << 20)

extern char **environ;

int fds[SLOTS];
bool together;
static struct {
	unsigned char *p;
	int fd; /* to ask for the size */
} maps[2];
static unsigned char buf[BUF_MAX];
#define SNAPSHOTS 8
static struct {
	const void *p;
	size_t n;
	uint64_t was;
} snapshots[SNAPSHOTS];
#define BUFFERS 4
static struct {
	pid_t owner; /* a child of fork has none */
	int pool;
	struct {
		void *p;
		size_t n;
		uint64_t was;
	} buffer[BUFFERS];
} patches;

static uint64_t hash(const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

static unsigned char *content(int index, uint64_t len)
{
	uint64_t x = (uint64_t)index * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t i = 0; i < len; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		buf[i] = (unsigned char)(x >> 56);
	}
	return buf;
}

static void path_of(char *to, int name)
{
	sprintf(to, "f%d", name);
}

static int flags_of(uint64_t choice)
{
	static const int access[] = {O_RDWR, O_RDWR, O_RDWR, O_RDWR, O_WRONLY, O_RDONLY};
	int flags = access[choice % 6];

	choice >>= 8;
	if (choice % 8)
		flags |= O_CREAT;
	if (choice / 8 % 8 == 0)
		flags |= O_TRUNC;
	if (choice / 64 % 4 == 0)
		flags |= O_APPEND;
	if (choice / 256 % 16 == 0)
		flags |= O_EXCL;
	if (choice / 4096 % 16 == 0)
		flags |= O_DSYNC;
	return flags;
}

static const char *stat_line(char *to, int r, const struct stat *st)
{
	if (r < 0)
		sprintf(to, "-1 errno %d", errno);
	else
		sprintf(to, "0 size %lld links %d mode %o old %d", (long long)st->st_size, (int)st->st_nlink, st->st_mode,
			st->st_size > 0 && st->st_mtime == 1000);
	return to;
}

static void result(char *to, long r)
{
	if (r < 0)
		sprintf(to, "-1 errno %d", errno);
	else
		sprintf(to, "%ld", r);
}

static void data_result(char *to, long r)
{
	if (r < 0)
		sprintf(to, "-1 errno %d", errno);
	else
		sprintf(to, "%ld %016llx", r, (unsigned long long)hash(buf, (size_t)r));
}

/*
 * By path; while two processes run by a descriptor, because a file that is not open here and that another process is writing
 * may show its size a moment later (docs/interception.md).
 */
static void do_stat(const struct op *op, const char *path, char *line)
{
	struct stat st;
	int fd, r;

	if (!together) {
		stat_line(line, op->choice % 2 ? stat(path, &st) : fstatat(AT_FDCWD, path, &st, 0), &st);
		return;
	}
	fd = open(path, O_RDONLY);
	r = fd < 0 ? -1 : fstat(fd, &st);
	stat_line(line, r, &st);
	if (fd >= 0)
		close(fd);
}

static void put_fd(int slot, int fd)
{
	if (fd < 0)
		return;
	if (fds[slot] >= 0)
		close(fds[slot]);
	fds[slot] = fd;
}

static off_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : st.st_size;
}

/* What can be touched of a mapping without a SIGBUS. */
static size_t mapped_bytes(int m)
{
	off_t size = size_of(maps[m].fd);

	return size > MAP_LEN ? MAP_LEN : (size_t)size;
}

static void do_open(const struct op *op, char *line)
{
	char path[16];
	int fd;

	path_of(path, op->name);
	fd = open(path, flags_of(op->choice), 0600 | (int)(op->choice >> 40 & 044));
	result(line, fd);
	put_fd(op->slot, fd);
}

static void do_seek(const struct op *op, char *line)
{
	static const int origin[] = {SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END};
	off_t off = (off_t)op->off;

	if (op->choice >> 8 & 1)
		off = -off;
	result(line, lseek(fds[op->slot], off, origin[op->choice % 4]));
}

static void do_fallocate(const struct op *op, char *line)
{
	static const int mode[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};

	if (op->choice % 5 == 4)
		sprintf(line, "%d", posix_fallocate(fds[op->slot], (off_t)op->off, (off_t)op->len));
	else
		result(line, fallocate(fds[op->slot], mode[op->choice % 5], (off_t)op->off, (off_t)op->len));
}

static void do_map(const struct op *op, char *line)
{
	int m = (int)(op->choice % 2);
	void *p;

	if (maps[m].p || fds[op->slot] < 0) {
		strcpy(line, "not now");
		return;
	}
	p = mmap(NULL, MAP_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fds[op->slot], 0);
	if (p == MAP_FAILED) {
		result(line, -1);
		return;
	}
	maps[m].p = p;
	maps[m].fd = dup(fds[op->slot]);
	result(line, maps[m].fd);
}

static void do_map_access(const struct op *op, int index, char *line)
{
	int m = (int)(op->choice % 2);
	size_t room = maps[m].p ? mapped_bytes(m) : 0, off = op->off, n = op->len % 20000;

	if (off >= room) {
		strcpy(line, "nothing");
		return;
	}
	if (n > room - off)
		n = room - off;
	if (op->kind == OP_map_write)
		memcpy(maps[m].p + off, content(index, n), n);
	sprintf(line, "%zu %016llx", n, (unsigned long long)hash(maps[m].p + off, n));
}

static void do_unmap(const struct op *op, char *line)
{
	int m = (int)(op->choice % 2);

	if (!maps[m].p) {
		strcpy(line, "not mapped");
		return;
	}
	result(line, munmap(maps[m].p, MAP_LEN));
	close(maps[m].fd);
	maps[m].p = NULL;
}

/* One snapshot more, in the place of another. */
static void do_peek(const struct op *op, char *line)
{
	const int i = (int)(op->choice % SNAPSHOTS);
	struct iovec iov;
	size_t got = 0;
	int r;

	splitfs_flags(SPLITFS_COPY);
	if (snapshots[i].p)
		splitfs_unpeek(snapshots[i].p);
	r = splitfs_peekv(fds[op->slot], (off_t)op->off, op->len, &iov, 1, &got);
	snapshots[i].p = r > 0 ? iov.iov_base : NULL;
	snapshots[i].n = r > 0 ? iov.iov_len : 0;
	if (r < 0) {
		result(line, -1);
		return;
	}
	snapshots[i].was = hash(snapshots[i].p, snapshots[i].n);
	sprintf(line, "%zu %016llx", got, (unsigned long long)snapshots[i].was);
}

/* Whatever has become of the file, and at the end of it. */
static void do_look(const struct op *op, char *line)
{
	const int i = (int)(op->choice % SNAPSHOTS);
	const bool same = snapshots[i].p && hash(snapshots[i].p, snapshots[i].n) == snapshots[i].was;

	if (!snapshots[i].p) {
		strcpy(line, "no snapshot");
		return;
	}
	sprintf(line, "%s %d", same ? "as it was" : "CHANGED", op->kind == OP_unpeek ? splitfs_unpeek(snapshots[i].p) : 0);
	if (op->kind == OP_unpeek)
		snapshots[i].p = NULL;
}

/* One buffer more, in the place of another. */
static void do_patch(const struct op *op, int index, char *line)
{
	const int i = (int)(op->choice % BUFFERS);
	ssize_t r;
	void *p;

	splitfs_flags(SPLITFS_COPY);
	if (patches.owner != getpid()) {
		const int dir = open(".", O_RDONLY | O_DIRECTORY);

		memset(&patches, 0, sizeof(patches));
		patches.owner = getpid();
		patches.pool = splitfs_pool_create(dir, BUFFERS * (size_t)BUF_MAX);
		close(dir);
	}
	if (patches.buffer[i].p)
		splitfs_free(patches.buffer[i].p);
	patches.buffer[i].p = p = splitfs_alloc(patches.pool, (off_t)op->off, op->len);
	if (!p) {
		result(line, -1);
		return;
	}
	memcpy(p, content(index, op->len), op->len);
	r = splitfs_patch(fds[op->slot], p, op->len, (off_t)op->off);
	patches.buffer[i].n = op->len;
	patches.buffer[i].was = hash(p, op->len);
	result(line, r);
}

/* Whatever has become of the file. */
static void do_patched(const struct op *op, char *line)
{
	const int i = (int)(op->choice % BUFFERS);
	void *p = patches.owner == getpid() ? patches.buffer[i].p : NULL;

	if (!p) {
		strcpy(line, "no buffer");
		return;
	}
	sprintf(line, "%s", hash(p, patches.buffer[i].n) == patches.buffer[i].was ? "as it was" : "CHANGED");
}

static void do_stdio(const struct op *op, int index, char *line)
{
	char path[16];
	size_t n = op->len % 5000;
	FILE *f;

	path_of(path, op->name);
	if (op->kind == OP_stdio_append) {
		f = fopen(path, op->choice % 4 ? "a" : "w");
		n = f ? fwrite(content(index, n), 1, n, f) : 0;
	} else {
		f = fopen(path, "r");
		if (f && fseek(f, (long)op->off, SEEK_SET) == 0)
			n = fread(buf, 1, n, f);
	}
	if (!f) {
		result(line, -1);
		return;
	}
	data_result(line, (long)n);
	fclose(f);
}

static void do_tmpfile_link(const struct op *op, int index, char *line)
{
	char path[16], proc[40];
	int fd = open(".", O_RDWR | O_TMPFILE, 0600);

	if (fd < 0) {
		result(line, -1);
		return;
	}
	if (write(fd, content(index, op->len), op->len) < 0) {
		result(line, -1);
		close(fd);
		return;
	}
	path_of(path, op->name);
	sprintf(proc, "/proc/self/fd/%d", fd);
	result(line, linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
	put_fd(op->slot, fd);
}

/* The same calls by number. */
static void do_by_number(const struct op *op, int index, char *line)
{
	long fd = fds[op->slot];

	switch (op->choice % 5) {
	case 0:
		data_result(line, syscall(SYS_pread64, fd, buf, op->len, op->off));
		break;
	case 1:
		result(line, syscall(SYS_pwrite64, fd, content(index, op->len), op->len, op->off));
		break;
	case 2:
		result(line, syscall(SYS_write, fd, content(index, op->len), op->len));
		break;
	case 3:
		result(line, syscall(SYS_ftruncate, fd, op->off));
		break;
	default:
		result(line, syscall(SYS_lseek, fd, op->off, 0l));
	}
}

/* Another program works on the file: the shell appends through a descriptor of its own. */
static void do_spawn(const struct op *op, char *line)
{
	char command[64];
	char *const args[] = {"sh", "-c", command, NULL};
	int status, err;
	pid_t pid;

	sprintf(command, op->choice % 2 ? "echo spawned >> f%d" : "cat f%d > f%d 2>/dev/null", op->name, op->new_name);
	err = posix_spawn(&pid, "/bin/sh", NULL, NULL, args, environ);
	if (err || waitpid(pid, &status, 0) < 0)
		sprintf(line, "error %d", err);
	else
		sprintf(line, "status %d", WEXITSTATUS(status));
}

/* One operation on the slots that it names. */
static void perform_on(const struct op *op, int index, char *line)
{
	struct timespec old[2] = {{1000, 0}, {1000, 0}};
	int fd = fds[op->slot], other = fds[op->other];
	char path[16], to[16];
	struct iovec iov[3];
	struct stat st;
	loff_t off = (loff_t)op->off;

	path_of(path, op->name);
	path_of(to, op->new_name);
	iov[0] = (struct iovec){buf, op->len / 3};
	iov[1] = (struct iovec){buf + op->len / 3, op->len / 2 - op->len / 3};
	iov[2] = (struct iovec){buf + op->len / 2, op->len - op->len / 2};
	switch (op->kind) {
	case OP_open:
		do_open(op, line);
		break;
	case OP_close:
		result(line, close(fd));
		fds[op->slot] = -1;
		break;
	case OP_write:
		result(line, write(fd, content(index, op->len), op->len));
		break;
	case OP_pwrite:
		result(line, pwrite(fd, content(index, op->len), op->len, off));
		break;
	case OP_writev:
		content(index, op->len);
		result(line, op->choice % 2 ? writev(fd, iov, 3) : pwritev2(fd, iov, 3, off, op->choice % 4 ? 0 : RWF_APPEND));
		break;
	case OP_read:
		data_result(line, read(fd, buf, op->len));
		break;
	case OP_pread:
		data_result(line, pread(fd, buf, op->len, off));
		break;
	case OP_readv:
		data_result(line, op->choice % 2 ? readv(fd, iov, 3) : preadv(fd, iov, 3, off));
		break;
	case OP_lseek:
		do_seek(op, line);
		break;
	case OP_ftruncate:
		result(line, ftruncate(fd, op->choice % 2 ? off : (off_t)op->len));
		break;
	case OP_truncate:
		result(line, truncate(path, off));
		break;
	case OP_fsync:
		result(line, fsync(fd));
		break;
	case OP_fdatasync:
		result(line, fdatasync(fd));
		break;
	case OP_dup:
		result(line, fd = op->choice % 2 ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 3));
		put_fd(op->other, fd);
		break;
	case OP_dup2:
		if (other < 0) {
			strcpy(line, "no target");
			break;
		}
		result(line, dup2(fd, other));
		break;
	case OP_setfl:
		result(line, fcntl(fd, F_SETFL, op->choice % 2 ? O_APPEND : 0));
		break;
	case OP_rename:
		result(line, rename(path, to));
		break;
	case OP_unlink:
		result(line, unlink(path));
		break;
	case OP_link:
		result(line, link(path, to));
		break;
	case OP_fstat:
		stat_line(line, fstat(fd, &st), &st);
		break;
	case OP_stat:
		do_stat(op, path, line);
		break;
	case OP_touch:
		result(line, op->choice % 2 && !together ? utimensat(AT_FDCWD, path, old, 0) : futimens(fd, old));
		break;
	case OP_fallocate:
		do_fallocate(op, line);
		break;
	case OP_map:
		do_map(op, line);
		break;
	case OP_map_read:
	case OP_map_write:
		do_map_access(op, index, line);
		break;
	case OP_unmap:
		do_unmap(op, line);
		break;
	case OP_copy:
		result(line,
		       copy_file_range(fd, &off, other, op->choice % 2 ? NULL : &(loff_t){(loff_t)(op->choice >> 8) & 0xffff},
				       op->len, 0));
		break;
	case OP_sendfile:
		result(line, sendfile(fd, other, op->choice % 2 ? NULL : &off, op->len));
		break;
	case OP_peek:
		do_peek(op, line);
		break;
	case OP_look:
	case OP_unpeek:
		do_look(op, line);
		break;
	case OP_patch:
		do_patch(op, index, line);
		break;
	case OP_patched:
		do_patched(op, line);
		break;
	case OP_stdio_append:
	case OP_stdio_read:
		do_stdio(op, index, line);
		break;
	case OP_tmpfile_link:
		do_tmpfile_link(op, index, line);
		break;
	case OP_by_number:
		do_by_number(op, index, line);
		break;
	case OP_spawn:
		do_spawn(op, line);
		break;
	default:
		strcpy(line, "not now");
	}
}

/* Mostly a slot with a descriptor in it, if there is one. */
static int open_slot(int slot, uint64_t choice)
{
	for (int i = 0; i < SLOTS && choice % 16; i++)
		if (fds[(slot + i) % SLOTS] >= 0)
			return (slot + i) % SLOTS;
	return slot;
}

void perform(const struct op *made, int index, char *line)
{
	struct op found = *made;
	const struct op *op = &found;

	if (op->kind != OP_open && op->kind != OP_tmpfile_link) {
		found.slot = open_slot(op->slot, op->choice >> 48);
		if (op->kind != OP_dup)
			found.other = open_slot(op->other, op->choice >> 52);
	}
	perform_on(op, index, line);
}

bool any_mapped(void)
{
	return maps[0].p || maps[1].p;
}
