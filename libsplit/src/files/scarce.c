/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file needs a descriptor of our own only while something is staged of it or its window is mapped anew: the call
 * that brings the next bytes brings a descriptor of the program's, by which the file is opened once more. So where
 * they are short another file does without: what is staged of it is relinked and retired, its grant goes back and its
 * descriptor is closed. From then on it is as a file that was just opened.
 *
 * Closing a descriptor of a file drops the process's POSIX locks on it: a file that may have one keeps its own.
 */
#include "files/scarce.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "fds/each.h"
#include "base/text.h"

#define TRIES	  16
#define TEXT_SIZE 640
#define FILES_FEW 8 /* more take turns */
#define STAGING	  3 /* a write of strict may fill more than one staging file, and is whole */

static uint32_t hand; /* the bucket of the hash where the next one is looked for */

bool sfs_may_be_locked(const struct sfs_inode *in)
{
	struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return in->locking > 0 || sys_fcntl(in->fd, F_OFD_GETLK, (long)&any) < 0 || any.l_type != F_UNLCK;
}

/* /proc/self/fdinfo has a line for each lock: "lock:", a number, ": ", its kind, ... */
bool sfs_fd_locked(int fd, bool posix)
{
	const char *what = posix ? ": POSIX" : "lock:";
	const size_t len = strlen(what);
	char path[36] = "/proc/self/fdinfo/", text[1024], digits[32];
	ssize_t n;
	int info;

	sfs_fd_path(digits, fd);
	memcpy(path + sizeof("/proc/self/fdinfo/") - 1, digits + sizeof("/proc/self/fd/") - 1, 12);
	info = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (info < 0)
		return true;
	n = sys_read(info, text, sizeof(text));
	sys_close(info);
	for (ssize_t i = 0; i + (ssize_t)len <= n; i++)
		if (memcmp(text + i, what, len) == 0)
			return true;
	return n < 0 || n == sizeof(text);
}

/* May fd lead to that file? Of one that is known that is known, too. */
static bool leads_to(int fd, const struct stat *st)
{
	const struct sfs_ofd *ofd = fd < sfs_fds_len ? load_acquire(&sfs_fds[fd]) : NULL;
	struct stat one;

	if (ofd == SFS_PRIVATE || (ofd > SFS_PRIVATE && ofd->inode->ino != st->st_ino))
		return false;
	return sys_fstat(fd, &one) == 0 && one.st_ino == st->st_ino && one.st_dev == st->st_dev;
}

static bool has_locked(int fd, void *st)
{
	return leads_to(fd, st) && sfs_fd_locked(fd, true);
}

/* Has this process a POSIX lock on the file of fd, through whichever descriptor? In doubt it has. */
static bool locked_somewhere(int fd)
{
	struct stat st;

	return sys_fstat(fd, &st) < 0 || sfs_fds_each(has_locked, &st) != 0;
}

enum sfs_lockers sfs_lockers(int fd)
{
	struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (sys_fcntl(fd, F_OFD_GETLK, (long)&any) < 0 || any.l_type == F_UNLCK)
		return LOCKED_BY_NOBODY;
	return any.l_pid == sys_getpid() ? LOCKED_HERE : LOCKED_BY_SOMEBODY;
}

bool sfs_locked_before(int fd)
{
	const enum sfs_lockers who = sfs_lockers(fd);

	return who == LOCKED_HERE || (who == LOCKED_BY_SOMEBODY && locked_somewhere(fd));
}

/* sfs_files.lock held: is it open, and being written to? */
static bool writes(const struct sfs_inode *in)
{
	if (sfs_parked(&in->park))
		return false;
	return in->busy || sfs_inode_pending(in) || in->touched;
}

/* inode.lock and sfs_files.lock held: is nothing under way that counts on the descriptor or on the grant? */
static bool can_do_without(const struct sfs_inode *in, bool busy_too)
{
	const struct sfs_grant *g = &in->grant;

	if (in->fd < 0 || in->life == LIFE_LOST || (writes(in) && !busy_too))
		return false;
	if (sfs_kernel_busy(in) || in->flights.used || in->pins.total > 0)
		return false;
	if (g->state == GRANT_QUEUED || g->revoke || g->revokes > 0 || load_acquire(&g->acquiring) || load_acquire(&g->asking))
		return false;
	return !in->locked && !sfs_may_be_locked(in);
}

/* The next one that can, with its lock held; NULL. */
static struct sfs_inode *next(bool busy_too)
{
	struct sfs_inode *found = NULL;

	sfs_mutex_lock(&sfs_files.lock);
	for (uint32_t n = 0; n < SFS_HASH && !found; n++) {
		hand = (hand + 1) % SFS_HASH;
		for (struct sfs_inode *in = sfs_files.hash[hand]; in && !found; in = in->next) {
			/* The caller may have one of them. */
			if (__atomic_load_n(&in->fd, __ATOMIC_RELAXED) < 0 || sfs_bias_mine(&in->lock.bias) ||
			    !sfs_inode_trylock(in))
				continue;
			if (can_do_without(in, busy_too))
				found = in;
			else
				sfs_inode_unlock(in);
		}
	}
	sfs_mutex_unlock(&sfs_files.lock);
	return found;
}

static bool give_up(struct sfs_inode *in)
{
	if (!sfs_inode_settled(in))
		return false;
	sfs_inode_close_own(in);
	/* Who mapped it goes on to look at what the kernel has. */
	if (!sfs_server_is_kernel(&in->server) && in->grant.state != GRANT_NONE)
		sfs_agent_release(in->vol, &in->grant, in->ino, in->gen);
	return true;
}

bool sfs_numbers_less(bool busy_too)
{
	const uint64_t signals = sfs_signals_block();
	bool done = false;

	for (int n = 0; n < TRIES && !done; n++) {
		struct sfs_inode *in = next(false);

		if (!in && busy_too)
			in = next(true);
		if (!in)
			break;
		done = give_up(in);
		sfs_inode_unlock(in);
	}
	sfs_signals_restore(signals);
	return done;
}

/* ---- what must be left ---- */

struct files {
	const struct sfs_inode *in[FILES_FEW];
	int n;
};

static void add_file(struct files *f, const struct sfs_inode *in)
{
	if (in->vol->mode != SFS_STRICT || __atomic_load_n(&in->fd, __ATOMIC_RELAXED) >= 0)
		return;
	for (int i = 0; i < f->n; i++)
		if (f->in[i] == in)
			return;
	f->in[f->n++] = in;
}

/* A descriptor that has not been looked at yet. */
static bool maybe_strict(int fd)
{
	const struct sfs_volume *vol;
	struct stat st;

	if (sys_fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	vol = sfs_volume_of(st.st_dev);
	return vol && vol->mode == SFS_STRICT;
}

struct sfs_need sfs_numbers_needed(int limit)
{
	struct sfs_need need = {0};
	struct files known = {.n = 0};
	int unknown = 0;

	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs.volumes[i].mode == SFS_STRICT) {
			const int left = STAGING - sfs_pool_count(&sfs.volumes[i].pool);

			need.strict = true;
			need.staging = need.staging > left ? need.staging : left;
		}
	if (!need.strict)
		return need;
	for (int fd = 0; fd < limit && fd < sfs_fds_len && known.n + unknown < FILES_FEW; fd++) {
		const struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);
		const struct sfs_inode *in = ofd > SFS_PRIVATE ? ofd->inode : NULL;

		if (in)
			add_file(&known, in);
		else if (!ofd)
			unknown += maybe_strict(fd);
	}
	need.files = known.n + unknown;
	return need;
}

bool sfs_numbers_unstaged(void)
{
	const uint64_t signals = sfs_signals_block();
	bool some = false;

	for (int i = 0; i < sfs.nvolumes; i++)
		some = sfs_pool_empty(&sfs.volumes[i].pool) || some;
	sfs_signals_restore(signals);
	return some;
}

int sfs_scarce_open(const struct sfs_inode *in, int fd, int flags)
{
	const bool strict = in->vol->mode == SFS_STRICT;
	char path[32];
	int own;

	sfs_fd_path(path, fd);
	own = sfs_file_open(path, flags, false);
	for (int n = 0; own == -EMFILE && n < TRIES && sfs_numbers_less(strict); n++)
		own = sfs_file_open(path, flags, false);
	return own == -EMFILE && strict ? sfs_file_open(path, flags, true) : own;
}

int sfs_scarce_refuse(const struct sfs_volume *vol)
{
	static bool said;
	char text[TEXT_SIZE];
	size_t n = 0;

	if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		return -EIO;
	sfs_text_add(text, &n, sizeof(text), "libsplit: no descriptor is left for a file of ");
	sfs_text_add(text, &n, sizeof(text), vol->dir);
	sfs_text_add(
		text, &n, sizeof(text),
		": calls on it fail, because strict mode can't be kept without; raise the limit of open files (ulimit -n)\n");
	sys_write(2, text, n);
	return -EIO;
}
