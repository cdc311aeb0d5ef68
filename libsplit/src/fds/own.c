/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of the library itself. They stand above the numbers that the program may have (the soft limit of RLIMIT_NOFILE), so that it
 * can open as many files as without us, and out of reach of programs that close all numbers they know of. A number above the limit
 * can be had only while the limit is higher, for an instant; it stays valid afterwards. Where the soft limit is the hard one,
 * we take numbers that the program then lacks: high ones, but not higher than SHARED_FROM. The kernel's table of descriptors
 * reaches up to the highest number, and fork(2) copies it, close_range(2) walks through it.
 */
#include <errno.h>

#include "base/sys.h"
#include "fds/own.h"

#define SHARED_FROM 1536 /* not of those that select(2) can take, and few enough for a table of 2048 */

static int prlimit_nofile(const struct rlimit *set, struct rlimit *old)
{
	return (int)sys_call4(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)set, (long)old);
}

void sfs_limit_lift(struct sfs_limit *l)
{
	sfs_mutex_lock(&sfs_fdt.numbers);
	l->lifted = false;
	if (prlimit_nofile(NULL, &l->was) < 0) {
		l->was.rlim_cur = 0;
		return;
	}
	l->now = l->was;
	l->now.rlim_cur = l->was.rlim_max < (rlim_t)sfs_fds_len ? l->was.rlim_max : (rlim_t)sfs_fds_len;
	if (l->now.rlim_cur <= l->was.rlim_cur)
		return;
	/* For a child of a fork in another thread. */
	sfs_fdt.soft_limit = l->was.rlim_cur;
	l->lifted = prlimit_nofile(&l->now, NULL) == 0;
}

void sfs_limit_set_back(const struct sfs_limit *l)
{
	struct rlimit seen;

	/* Another thread may have set it meanwhile: then it is as that wants it. */
	if (l->lifted && prlimit_nofile(&l->was, &seen) == 0 &&
	    (seen.rlim_cur != l->now.rlim_cur || seen.rlim_max != l->now.rlim_max))
		prlimit_nofile(&seen, NULL);
	sfs_fdt.soft_limit = 0;
	sfs_mutex_unlock(&sfs_fdt.numbers);
}

int sfs_limit_move(const struct sfs_limit *l, int fd)
{
	const long limit = l->was.rlim_cur > (rlim_t)sfs_fds_len ? sfs_fds_len : (long)l->was.rlim_cur;
	const long shared = limit - limit / 4 < SHARED_FROM ? limit - limit / 4 : SHARED_FROM;
	const long from[] = {l->lifted ? limit : shared, shared < limit / 2 ? shared : limit / 2};
	int high = -EINVAL;

	if (fd < 0)
		return fd;
	for (int i = 0; i < 2 && high < 0; i++)
		high = sys_fcntl(fd, F_DUPFD_CLOEXEC, from[i]);
	if (high >= 0)
		sys_close(fd);
	else
		high = fd;
	if (high < sfs_fds_len)
		sfs_fds_private(high);
	return high;
}

int sfs_high_fd(int fd)
{
	struct sfs_limit l;

	sfs_limit_lift(&l);
	fd = sfs_limit_move(&l, fd);
	sfs_limit_set_back(&l);
	return fd;
}

void sfs_private_close(int fd)
{
	if (fd < sfs_fds_len)
		store_release(&sfs_fds[fd], (struct sfs_ofd *)NULL);
	sys_close(fd);
}

void sfs_limit_child(void)
{
	struct rlimit rl;

	if (sfs_fdt.soft_limit && prlimit_nofile(NULL, &rl) == 0) {
		rl.rlim_cur = sfs_fdt.soft_limit;
		prlimit_nofile(&rl, NULL);
	}
	sfs_fdt.soft_limit = 0;
}
