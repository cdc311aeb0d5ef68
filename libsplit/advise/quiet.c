/* SPDX-License-Identifier: Apache-2.0 */
/* What the wrappers ask the core besides, where there is nothing to do because nothing is ever staged; and changes of directories. */
#include "core.h"

#include "base/deferred.h"
#include "lease/opening.h"
#include "meta/across.h"

#include <errno.h>

struct sfs_opening sfs_opening(void)
{
	return (struct sfs_opening){0};
}
void sfs_opened(struct sfs_opening o)
{
	(void)o;
}
void sfs_all_true(void)
{
}
void sfs_sync_all(void)
{
}
void sfs_snapshots_bar(void)
{
}
void sfs_snapshots_allow(void)
{
}
void sfs_fork_prepare(void)
{
}
void sfs_fork_parent(void)
{
}
void sfs_fork_child(void)
{
	adv_files_child();
	adv_streams_begin(); /* what the parent has written is the parent's */
}
void sfs_exec_prepare(void)
{
	adv_streams_end(false);
}
void sfs_exec_announce(bool all)
{
	(void)all;
}
void sfs_spawn_announce(bool all)
{
	(void)all;
}
void sfs_exec_keep_locks(bool keep)
{
	(void)keep;
}
void sfs_exit(void)
{
	adv_streams_end(!adv_abrupt);
}
bool sfs_store_again(uintptr_t addr)
{
	(void)addr;
	return false;
}

void sfs_handler_installed(void)
{
	sfs_handlers_seen();
}
void sfs_limit_coming(uint64_t bytes)
{
	(void)bytes;
}

void sfs_limits_changed(void)
{
}
void sfs_write_through_all(void)
{
}
void sfs_numbers_closed(void)
{
}
/* No number of the program's is kept. */
bool sfs_numbers_back(long fd, bool file)
{
	(void)fd, (void)file;
	return false;
}

sfs_call_handler_fn *sfs_call_handler;
uint32_t sfs_deferred;

bool sfs_defer(int sig, const siginfo_t *info, ucontext_t *at, uint64_t block)
{
	(void)sig, (void)info, (void)at, (void)block;
	return false;
}
void sfs_deliver(bool call, const uint64_t *mark)
{
	(void)call, (void)mark;
}
uint64_t sfs_blocked_meanwhile(void)
{
	return 0;
}

int sfs_write_through(int fd)
{
	(void)fd;
	return 0;
}
bool sfs_wants_dsync(int fd)
{
	(void)fd;
	return false;
}
/* A directory for each thread; none is ours. */
bool sfs_one_thread(void)
{
	struct stat st;

	return sys_fstatat(AT_FDCWD, "/proc/self/task", &st, 0) == 0 && st.st_nlink - 2 == 1;
}
int sfs_true_to_look(int fd)
{
	(void)fd;
	return 0;
}
int sfs_change_over(int fd, struct sfs_change *c, bool made)
{
	(void)fd, (void)c, (void)made;
	return 0;
}
void sfs_changed(int fd)
{
	(void)fd;
}
void sfs_lock_over(int fd, const struct sfs_locking *l)
{
	(void)fd, (void)l;
}
int sfs_truncate_known(dev_t dev, ino_t ino, off_t len)
{
	(void)dev, (void)ino, (void)len;
	return SFS_PASS;
}
int sfs_give_up_known(dev_t dev, ino_t ino)
{
	(void)dev, (void)ino;
	return 0;
}
void sfs_privileges_given(int dirfd, const char *path, int at_flags)
{
	(void)dirfd, (void)path, (void)at_flags;
}
uint64_t sfs_stat_begin(void)
{
	return 0;
}
bool sfs_fix_stat(struct stat *st, uint64_t seen)
{
	(void)st, (void)seen;
	return false;
}
bool sfs_fix_statx(struct statx *stx, uint64_t seen)
{
	(void)stx, (void)seen;
	return false;
}

int sfs_name_durable(int dirfd, const char *path)
{
	ADV_ADD(adv->names, path && adv_name_below(dirfd, path));
	return 0;
}
int sfs_names_durable(int fromfd, const char *from, int tofd, const char *to)
{
	(void)fromfd, (void)from;
	return sfs_name_durable(tofd, to);
}
void sfs_name_given(int dirfd, const char *path)
{
	(void)dirfd, (void)path; /* sfs_names_durable and its like count the name */
}
int sfs_attr_durable(int dirfd, const char *path, int at_flags)
{
	(void)at_flags;
	ADV_ADD(adv->attributes, path && path[0] ? adv_name_below(dirfd, path) : sfs_ours(dirfd));
	return 0;
}
int sfs_fd_durable(int fd)
{
	(void)fd;
	return 0;
}

/* There are no volumes. */
bool sfs_across(int fromfd, const char *from, int at_flags, int tofd, const char *to)
{
	(void)fromfd, (void)from, (void)at_flags, (void)tofd, (void)to;
	return false;
}
