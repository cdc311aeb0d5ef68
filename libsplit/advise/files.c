/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the directory that this process has open, and the descriptors that lead to them. */
#include "core.h"

#include <errno.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4u
#endif
#define FDS    65536
#define FILES  16384
#define HASHES 4096

struct adv_report *adv;
struct sfs_mutex adv_lock;

struct sfs_ofd **sfs_fds;
bool *sfs_fds_fresh;
int *sfs_fds_flags;
int sfs_fds_len;

static struct sfs_ofd *table[FDS];
static bool fresh[FDS];
static struct sfs_ofd ofds[FDS];
static struct adv_file files[FILES], *hash[HASHES];
static unsigned next_file;
static char dir[4096];
static size_t dir_len;
static uint32_t user; /* this process has opened a file of the directory */

static struct adv_file **place_of(dev_t dev, ino_t ino)
{
	return &hash[(dev * 31 + ino) % HASHES];
}

static struct adv_file *find_locked(dev_t dev, ino_t ino)
{
	for (struct adv_file *f = *place_of(dev, ino); f; f = f->next)
		if (f->dev == dev && f->ino == ino)
			return f;
	return NULL;
}

static void unlink_locked(struct adv_file *f)
{
	for (struct adv_file **p = place_of(f->dev, f->ino); *p; p = &(*p)->next)
		if (*p == f) {
			*p = f->next;
			return;
		}
}

/* An entry that nobody has open; NULL when all are in use. */
static struct adv_file *free_locked(void)
{
	for (unsigned i = 0; i < FILES; i++) {
		struct adv_file *f = &files[next_file++ % FILES];

		if (f->used && f->refs > 0)
			continue;
		if (f->used)
			unlink_locked(f);
		return f;
	}
	return NULL;
}

struct adv_file *adv_file_get_locked(const struct stat *st)
{
	struct adv_file *f = find_locked(st->st_dev, st->st_ino), **p;

	if (f) {
		f->refs++;
		return f;
	}
	f = free_locked();
	if (!f)
		return NULL;
	*f = (struct adv_file){.dev = st->st_dev, .ino = st->st_ino, .refs = 1, .used = true};
	p = place_of(f->dev, f->ino);
	f->next = *p;
	*p = f;
	return f;
}

void adv_file_put_locked(struct adv_file *f)
{
	if (--f->refs > 0)
		return;
	adv_closed(f);
	/* What was written without an fsync is remembered, for a rename of the closed file. */
	if (!f->mapped && f->unsynced == 0) {
		unlink_locked(f);
		*f = (struct adv_file){0};
	} else if (!f->mapped) {
		f->reason = ADV_FEW;
	}
}

struct adv_file *adv_file_find(const struct stat *st)
{
	struct adv_file *f;

	sfs_mutex_lock(&adv_lock);
	f = find_locked(st->st_dev, st->st_ino);
	sfs_mutex_unlock(&adv_lock);
	return f;
}

static const char *value(char *const *envp, const char *name)
{
	for (; envp && *envp; envp++) {
		size_t n = 0;

		while (name[n] && (*envp)[n] == name[n])
			n++;
		if (!name[n] && (*envp)[n] == '=')
			return *envp + n + 1;
	}
	return NULL;
}

/* FILE:DIR: maps the file, keeps the directory. */
static bool open_report(const char *text)
{
	char path[4096];
	size_t n = 0;
	int fd;

	while (text[n] && text[n] != ':' && n + 1 < sizeof(path)) {
		path[n] = text[n];
		n++;
	}
	path[n] = 0;
	if (text[n] != ':')
		return false;
	for (text += n + 1; text[dir_len] && dir_len + 1 < sizeof(dir); dir_len++)
		dir[dir_len] = text[dir_len];
	fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	adv = sys_mmap(NULL, sizeof(*adv), 3 /* PROT_READ | PROT_WRITE */, 1 /* MAP_SHARED */, fd, 0);
	sys_close(fd);
	return !sys_is_err(adv) && adv->magic == ADV_MAGIC;
}

bool sfs_init(char *const *envp)
{
	const char *text = value(envp, ADV_ENV);

	if (!text || !open_report(text)) {
		adv = NULL;
		return false;
	}
	sfs_fds = table;
	sfs_fds_fresh = fresh;
	sfs_fds_len = FDS;
	ADV_ADD(adv->processes, 1);
	adv_streams_begin();
	return true;
}

void adv_files_child(void)
{
	sfs_mutex_init(&adv_lock);
	user = 0;
	ADV_ADD(adv->processes, 1);
}

bool sfs_active(void)
{
	return adv != NULL;
}

/* Where fd leads to; its length, or a negative errno value. */
static ssize_t path_of(int fd, char *path, size_t size)
{
	char link[32] = "/proc/self/fd/", digits[12];
	int at = 14, n = 0;

	for (int rest = fd; n == 0 || rest; rest /= 10)
		digits[n++] = (char)('0' + rest % 10);
	while (n)
		link[at++] = digits[--n];
	return sys_readlinkat(AT_FDCWD, link, path, size);
}

/* Is it the directory, or below it? */
static bool below(int fd)
{
	char path[4096];
	const ssize_t n = path_of(fd, path, sizeof(path));

	if (n < (ssize_t)dir_len || (n > (ssize_t)dir_len && dir_len > 1 && path[dir_len] != '/'))
		return false;
	for (size_t i = 0; i < dir_len; i++)
		if (path[i] != dir[i])
			return false;
	return true;
}

bool adv_name_below(int dirfd, const char *path)
{
	char parent[4096];
	size_t n = 0, slash = 0;
	bool yes;
	int fd;

	for (; path[n] && n + 1 < sizeof(parent); n++) {
		parent[n] = path[n];
		if (path[n] == '/' && path[n + 1])
			slash = n + 1;
	}
	parent[slash] = 0;
	fd = sys_openat(dirfd, slash ? parent : ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	yes = fd >= 0 && below(fd);
	if (fd >= 0)
		sys_close(fd);
	return yes;
}

static void drop_locked(int fd)
{
	struct sfs_ofd *ofd = table[fd];

	table[fd] = NULL;
	if (ofd > SFS_PRIVATE)
		adv_file_put_locked(ofd->file);
}

static void drop(int fd)
{
	if (fd < 0 || fd >= sfs_fds_len)
		return;
	sfs_mutex_lock(&adv_lock);
	drop_locked(fd);
	sfs_mutex_unlock(&adv_lock);
}

void sfs_adopt(int fd)
{
	struct sfs_ofd *ofd = SFS_FOREIGN;
	struct stat st;
	bool ours;

	if (fd < 0 || fd >= sfs_fds_len)
		return;
	ours = sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && below(fd);
	sfs_mutex_lock(&adv_lock);
	drop_locked(fd);
	if (ours) {
		ofds[fd].flags = sys_fcntl(fd, F_GETFL, 0);
		ofds[fd].file = ofds[fd].flags & O_PATH ? NULL : adv_file_get_locked(&st);
		if (ofds[fd].file)
			ofd = &ofds[fd];
	}
	__atomic_store_n(&table[fd], ofd, __ATOMIC_RELEASE);
	sfs_mutex_unlock(&adv_lock);
	if (ofd > SFS_PRIVATE && !__atomic_exchange_n(&user, 1, __ATOMIC_RELAXED))
		ADV_ADD(adv->users, 1);
}

bool sfs_ours_unknown(int fd)
{
	sfs_adopt(fd);
	return sfs_known(fd) != NULL;
}

int sfs_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	struct stat st;
	const bool new = flags &O_CREAT &&sys_fstatat(dirfd, path, &st, 0) < 0;
	const int fd = sys_openat(dirfd, path, flags, mode);

	if (fd < 0)
		return fd;
	sfs_adopt(fd);
	if (sfs_known(fd)) {
		ADV_ADD(adv->opens, 1);
		ADV_ADD(adv->created, new);
		ADV_ADD(adv->names, new);
	}
	return fd;
}

int sfs_close(int fd)
{
	drop(fd);
	return SFS_PASS;
}

void sfs_forget(int fd)
{
	drop(fd);
}

void sfs_replaced(int fd)
{
	drop(fd);
}

int sfs_close_range(unsigned first, unsigned last, unsigned flags)
{
	for (unsigned fd = first; !(flags & CLOSE_RANGE_CLOEXEC) && fd <= last && fd < FDS; fd++)
		if (table[fd])
			drop((int)fd);
	return (int)sys_call3(SYS_close_range, first, last, flags);
}

int sfs_fcntl(int fd, int cmd, long arg)
{
	const int r = sys_fcntl(fd, cmd, arg);
	struct sfs_ofd *ofd = sfs_known(fd);

	if (r >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		sfs_adopt(r);
	else if (r >= 0 && cmd == F_SETFL && ofd)
		ofd->flags = sys_fcntl(fd, F_GETFL, 0);
	return r;
}

int sfs_setlease(int fd, int type)
{
	struct sfs_locking none;

	sfs_true_to_lock(fd, &none);
	return sys_fcntl(fd, F_SETLEASE, type);
}

int sfs_dup(int fd)
{
	const int r = (int)sys_call1(SYS_dup, fd);

	sfs_adopt(r);
	return r;
}

int sfs_dup3(int fd, int newfd, int flags)
{
	const int r = (int)sys_call3(SYS_dup3, fd, newfd, flags);

	sfs_adopt(r);
	return r;
}

void adv_hand_over(int fd, enum adv_reason reason)
{
	struct sfs_ofd *ofd = sfs_known(fd);
	uint32_t unset = 0;
	ssize_t n;

	if (!ofd)
		return;
	if (ofd->file->reason == ADV_FEW || reason == ADV_MAPPED)
		ofd->file->reason = reason;
	if (!__atomic_compare_exchange_n(&adv->example_state[reason], &unset, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	n = path_of(fd, adv->example[reason], sizeof(adv->example[reason]) - 1);
	adv->example[reason][n > 0 ? n : 0] = 0;
}
