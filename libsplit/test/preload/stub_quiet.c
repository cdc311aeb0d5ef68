/* SPDX-License-Identifier: Apache-2.0 */
/* What the wrappers ask the core besides (stub_core.c), and has no answer or one only: nothing is staged, and nothing can be patched. */
#include "base/sys.h"
#include "calls/calls.h"
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

bool sfs_store_again(uintptr_t addr)
{
	(void)addr;
	return false;
}

void sfs_handler_installed(void)
{
}

uint32_t sfs_deferred;

sfs_call_handler_fn *sfs_call_handler;

void sfs_deliver(bool call, const uint64_t *mark)
{
	(void)call, (void)mark;
}

uint64_t sfs_blocked_meanwhile(void)
{
	return 0;
}

bool sfs_defer(int sig, const siginfo_t *info, ucontext_t *at, uint64_t block)
{
	(void)sig, (void)info, (void)at, (void)block;
	return false;
}

int sfs_mapped(int fd)
{
	(void)fd;
	return 0;
}

bool sfs_one_thread(void)
{
	return false;
}

void sfs_numbers_closed(void)
{
}

bool sfs_numbers_back(long fd, bool file)
{
	(void)fd, (void)file;
	return false;
}

int sfs_pool_create(int dirfd, size_t size)
{
	(void)dirfd, (void)size;
	return -ENOTSUP;
}

int sfs_pool_destroy(int pool)
{
	(void)pool;
	return -EINVAL;
}

int sfs_alloc(int pool, off_t off, size_t len, void **p)
{
	(void)pool, (void)off, (void)len, (void)p;
	return -EINVAL;
}

int sfs_free(void *buf)
{
	(void)buf;
	return -EINVAL;
}

int sfs_swap(int fd1, off_t off1, int fd2, off_t off2, size_t len)
{
	(void)fd1, (void)off1, (void)fd2, (void)off2, (void)len;
	return -ENOTSUP;
}

int sfs_write_atomic(const struct sfs_range *ranges, int n)
{
	(void)ranges, (void)n;
	return -ENOTSUP;
}

int sfs_unpeek(const void *p)
{
	(void)p;
	return -EINVAL;
}

void sfs_snapshots_bar(void)
{
}

void sfs_snapshots_allow(void)
{
}

void sfs_unlink_end(const struct sfs_unlink *u, bool gone)
{
	(void)u, (void)gone;
}

uint64_t sfs_stat_begin(void)
{
	return 0;
}

void sfs_name_given(int dirfd, const char *path)
{
	(void)dirfd, (void)path;
}

bool sfs_wants_dsync(int fd)
{
	(void)fd;
	return true;
}

void sfs_limit_coming(uint64_t bytes)
{
	(void)bytes;
}

void sfs_limits_changed(void)
{
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

bool sfs_across(int fromfd, const char *from, int at_flags, int tofd, const char *to)
{
	(void)fromfd, (void)from, (void)at_flags, (void)tofd, (void)to;
	return false;
}
