/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A core that serves every regular file below $STUB_DIR with the plain system call, so that the wrappers can be tested by
 * themselves: whatever differs from a run without the library is the wrappers' fault. At exit it writes how often each function
 * was called to $STUB_COUNTS.
 */
#include "base/sys.h"
#include "calls/calls.h"
#include "meta/across.h"

#include <errno.h>
#include <sys/mman.h>

#define FDS	 65536
#define NOT_OURS ((struct sfs_ofd *)1)
#define OURS	 ((struct sfs_ofd *)16)

/* clang-format off */
#define FUNCTIONS(X) \
	X(openat) X(adopt) X(close) X(readv) X(writev) X(read) X(write) X(lseek) X(fsync) X(sync_all) \
	X(ftruncate) X(truncate) X(fallocate) X(fcntl) X(dup) X(dup3) X(close_range) X(make_true) \
	X(make_true_forever) X(changed) X(make_path_true) X(fix_stat) X(fix_statx) X(fork_prepare) \
	X(fork_parent) X(fork_child) X(exec_prepare) X(exit) X(forget) X(stop_staging) X(name_durable) \
	X(names_durable) X(attr_durable) X(fd_durable) \
	X(all_true) X(write_through) X(write_through_all)
/* clang-format on */
#define ENUM(name) N_##name,
#define NAME(name) #name,
enum { FUNCTIONS(ENUM) COUNT };
static const char *const names[] = {FUNCTIONS(NAME)};
static unsigned long counts[COUNT];
#define CALLED(name) __atomic_fetch_add(&counts[N_##name], 1, __ATOMIC_RELAXED)

struct sfs_ofd **sfs_fds;
bool *sfs_fds_fresh;
int sfs_fds_len;
static struct sfs_ofd *table[FDS];
static bool fresh[FDS];
static const char *dir, *counts_file;
static size_t dir_len;

static size_t length(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

static int begins(const char *s, const char *with, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] != with[i])
			return 0;
	return 1;
}

static const char *value(char *const *envp, const char *name)
{
	size_t n = length(name);

	for (; envp && *envp; envp++)
		if (begins(*envp, name, n) && (*envp)[n] == '=')
			return *envp + n + 1;
	return NULL;
}

bool sfs_init(char *const *envp)
{
	dir = value(envp, "STUB_DIR");
	counts_file = value(envp, "STUB_COUNTS");
	if (!dir)
		return false;
	dir_len = length(dir);
	sfs_fds = table;
	sfs_fds_fresh = fresh;
	sfs_fds_len = FDS;
	return true;
}

bool sfs_active(void)
{
	return dir != NULL;
}

static size_t put_number(char *to, unsigned long v)
{
	char digits[24];
	size_t n = 0, i = 0;

	do
		digits[n++] = (char)('0' + v % 10);
	while ((v /= 10) != 0);
	while (n)
		to[i++] = digits[--n];
	return i;
}

static bool in_dir(int fd)
{
	char link[40] = "/proc/self/fd/", path[4096];
	size_t n = length(link);
	struct stat st;
	ssize_t len;

	if (sys_fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	link[n + put_number(link + n, (unsigned long)fd)] = 0;
	len = sys_readlinkat(AT_FDCWD, link, path, sizeof(path));
	return len > (ssize_t)dir_len && begins(path, dir, dir_len);
}

void sfs_adopt(int fd)
{
	CALLED(adopt);
	if (fd >= 0 && fd < sfs_fds_len)
		sfs_fds[fd] = in_dir(fd) ? OURS : NOT_OURS;
}

bool sfs_ours_unknown(int fd)
{
	sfs_adopt(fd);
	return fd >= 0 && fd < sfs_fds_len && sfs_fds[fd] == OURS;
}

int sfs_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = sys_openat(dirfd, path, flags, mode);

	CALLED(openat);
	if (fd >= 0)
		sfs_adopt(fd);
	return fd;
}

static void drop(int fd)
{
	if (fd >= 0 && fd < sfs_fds_len)
		sfs_fds[fd] = NULL;
}

int sfs_close(int fd)
{
	bool ours = fd >= 0 && fd < sfs_fds_len && sfs_fds[fd] == OURS;

	drop(fd);
	if (!ours)
		return SFS_PASS;
	CALLED(close);
	return sys_close(fd);
}

void sfs_forget(int fd)
{
	CALLED(forget);
	drop(fd);
}

void sfs_replaced(int fd)
{
	CALLED(forget);
	drop(fd);
}

/* Every second call is passed on, so that the wrappers' way after SFS_PASS is tested as well. */
static bool pass(void)
{
	static unsigned n;

	return __atomic_fetch_add(&n, 1, __ATOMIC_RELAXED) & 1;
}

ssize_t sfs_readv(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	CALLED(readv);
	return pass() ? SFS_PASS : sys_call6(SYS_preadv2, fd, (long)iov, cnt, off, 0, flags);
}

ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	CALLED(writev);
	return pass() ? SFS_PASS : sys_call6(SYS_pwritev2, fd, (long)iov, cnt, off, 0, flags);
}

ssize_t sfs_read(int fd, void *buf, size_t n, off_t off)
{
	CALLED(read);
	if (pass())
		return SFS_PASS;
	return off < 0 ? sys_read(fd, buf, n) : sys_pread(fd, buf, n, off);
}

ssize_t sfs_write(int fd, const void *buf, size_t n, off_t off)
{
	CALLED(write);
	if (pass())
		return SFS_PASS;
	return off < 0 ? sys_write(fd, buf, n) : sys_pwrite(fd, buf, n, off);
}

off_t sfs_lseek(int fd, off_t off, int whence)
{
	CALLED(lseek);
	return pass() ? SFS_PASS : sys_lseek(fd, off, whence);
}

int sfs_fsync(int fd, bool data_only)
{
	CALLED(fsync);
	return pass() ? SFS_PASS : data_only ? sys_fdatasync(fd) : sys_fsync(fd);
}

int sfs_truncate_known(dev_t dev, ino_t ino, off_t len)
{
	(void)dev;
	(void)ino;
	(void)len;
	return SFS_UNKNOWN;
}

int sfs_give_up_known(dev_t dev, ino_t ino)
{
	(void)dev;
	(void)ino;
	return SFS_UNKNOWN;
}

void sfs_privileges_given(int dirfd, const char *path, int at_flags)
{
	(void)dirfd;
	(void)path;
	(void)at_flags;
}

int sfs_ftruncate(int fd, off_t len)
{
	CALLED(ftruncate);
	return pass() ? SFS_PASS : sys_ftruncate(fd, len);
}

int sfs_truncate_open(int fd, int flags)
{
	(void)flags;
	return sys_ftruncate(fd, 0);
}

int sfs_fallocate(int fd, int mode, off_t off, off_t len)
{
	CALLED(fallocate);
	return pass() ? SFS_PASS : sys_fallocate(fd, mode, off, len);
}

int sfs_fcntl(int fd, int cmd, long arg)
{
	int r = sys_fcntl(fd, cmd, arg);

	CALLED(fcntl);
	if (r >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		sfs_adopt(r);
	return r;
}

int sfs_dup(int fd)
{
	int r = (int)sys_call1(SYS_dup, fd);

	CALLED(dup);
	if (r >= 0)
		sfs_adopt(r);
	return r;
}

int sfs_dup3(int fd, int newfd, int flags)
{
	int r = (int)sys_call3(SYS_dup3, fd, newfd, flags);

	CALLED(dup3);
	if (r >= 0)
		sfs_adopt(r);
	return r;
}

int sfs_close_range(unsigned first, unsigned last, unsigned flags)
{
	CALLED(close_range);
	for (unsigned fd = first; fd <= last && fd < FDS; fd++)
		drop((int)fd);
	return (int)sys_call3(SYS_close_range, first, last, flags);
}

int sfs_true_to_lock(int fd, struct sfs_locking *l)
{
	*l = (struct sfs_locking){0};
	return sfs_make_true(fd, false);
}

void sfs_lock_over(int fd, const struct sfs_locking *l)
{
	(void)l;
	sfs_changed(fd);
}

int sfs_setlease(int fd, int type)
{
	sfs_make_true(fd, false);
	return sys_fcntl(fd, F_SETLEASE, type);
}

int sfs_true_to_look(int fd)
{
	return sfs_make_true(fd, false);
}

int sfs_peek(int fd, off_t off, size_t len, const void **p, size_t *got)
{
	(void)fd;
	(void)off;
	(void)len;
	(void)p;
	(void)got;
	return -ENOTSUP;
}

/* No volume has pools here. */
ssize_t sfs_patch(int fd, void *buf, size_t len, off_t off)
{
	(void)fd, (void)buf, (void)len, (void)off;
	return -EINVAL;
}

int sfs_true_to_change(int fd, struct sfs_change *c)
{
	*c = (struct sfs_change){0};
	return sfs_make_true(fd, false);
}

int sfs_change_over(int fd, struct sfs_change *c, bool made)
{
	(void)c, (void)made;
	sfs_changed(fd);
	return 0;
}

int sfs_make_true(int fd, bool forever)
{
	(void)fd;
	if (forever)
		CALLED(make_true_forever);
	else
		CALLED(make_true);
	return 0;
}

void sfs_changed(int fd)
{
	(void)fd;
	CALLED(changed);
}

int sfs_make_path_true(int dirfd, const char *path, int at_flags)
{
	(void)dirfd, (void)path, (void)at_flags;
	CALLED(make_path_true);
	return 0;
}

int sfs_unlink_begin(int dirfd, const char *path, struct sfs_unlink *u)
{
	*u = (struct sfs_unlink){0};
	return sfs_make_path_true(dirfd, path, AT_SYMLINK_NOFOLLOW);
}

bool sfs_fix_stat(struct stat *st, uint64_t seen)
{
	(void)st, (void)seen;
	CALLED(fix_stat);
	return false;
}

bool sfs_fix_statx(struct statx *stx, uint64_t seen)
{
	(void)stx, (void)seen;
	CALLED(fix_statx);
	return false;
}

int sfs_name_durable(int dirfd, const char *path)
{
	(void)dirfd;
	(void)path;
	CALLED(name_durable);
	return 0;
}

int sfs_names_durable(int fromfd, const char *from, int tofd, const char *to)
{
	(void)fromfd;
	(void)from;
	(void)tofd;
	(void)to;
	CALLED(names_durable);
	return 0;
}
int sfs_attr_durable(int dirfd, const char *path, int at_flags)
{
	(void)dirfd;
	(void)path;
	(void)at_flags;
	CALLED(attr_durable);
	return 0;
}

int sfs_fd_durable(int fd)
{
	(void)fd;
	CALLED(fd_durable);
	return 0;
}

#define SIMPLE(name)                                                                                                           \
	void sfs_##name(void)                                                                                                  \
	{                                                                                                                      \
		CALLED(name);                                                                                                  \
	}
SIMPLE(sync_all)
SIMPLE(all_true)
SIMPLE(stop_staging)
SIMPLE(fork_prepare)
SIMPLE(fork_parent)
SIMPLE(fork_child)
SIMPLE(exec_prepare)
SIMPLE(write_through_all)

int sfs_write_through(int fd)
{
	(void)fd;
	CALLED(write_through);
	return 0;
}

static void write_counts(void)
{
	int fd = sys_openat(AT_FDCWD, counts_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	for (int i = 0; i < COUNT && fd >= 0; i++) {
		char line[64];
		size_t n = length(names[i]);

		for (size_t c = 0; c < n; c++)
			line[c] = names[i][c];
		line[n++] = ' ';
		n += put_number(line + n, counts[i]);
		line[n++] = '\n';
		sys_write(fd, line, n);
	}
	sys_close(fd);
}

void sfs_exit(void)
{
	CALLED(exit);
	if (counts_file)
		write_counts();
}
