/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that the kernel, or a thread of the C library, makes on the file itself: it is true before, and may have to
 * stay so.
 */
#include "preload.h"

#include <aio.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/sys.h"

/* The kernel changes the file of one descriptor, perhaps by what it finds in that of another; either may be ours. */
static long with_both_true(const struct request *q, int from, int to)
{
	struct sfs_change change = {0};
	long r = sfs_ours(from) ? sfs_true_to_look(from) : 0;

	if (r >= 0 && sfs_ours(to))
		r = sfs_true_to_change(to, &change);
	if (r < 0)
		return r;
	r = pl_make(q);
	pl_changed(from);
	if (sfs_ours(to)) {
		/* Bytes that were changed are counted; an ioctl that names another file has cloned it. */
		const int err = sfs_change_over(to, &change, r > 0 || (r == 0 && q->call == PL_ioctl && from >= 0));

		r = err < 0 ? err : r;
	}
	return r;
}

long do_true_then(const struct request *q)
{
	const unsigned char other = pl_rows[q->call].fd2;

	return other ? with_both_true(q, pl_fd(q), (int)q->a[other - 1]) : with_both_true(q, -1, pl_fd(q));
}

/* A call that changes no bytes of the file. */
long do_look_then(const struct request *q)
{
	long r = pl_true(pl_fd(q));

	if (r < 0)
		return r;
	r = pl_make(q);
	pl_changed(pl_fd(q));
	return r;
}

/* A POSIX lock. */
long do_lock_then(const struct request *q)
{
	struct sfs_locking locking = {0};
	long r = sfs_ours(pl_fd(q)) ? sfs_true_to_lock(pl_fd(q), &locking) : 0;

	if (r < 0)
		return r;
	r = pl_make(q);
	if (sfs_ours(pl_fd(q)) || locking.in)
		sfs_lock_over(pl_fd(q), &locking);
	return r;
}

/* The C library walks a tree and calls its own stat. */
long do_all_true(const struct request *q)
{
	sfs_all_true();
	return pl_make(q);
}

long do_sync(const struct request *q)
{
	sfs_sync_all();
	return pl_make(q);
}

/* A second descriptor that an ioctl names, or -1. */
static int other_fd(unsigned request, const void *arg)
{
	const struct file_clone_range *range = arg;

	if (request == FICLONE)
		return (int)(long)arg;
	return request == FICLONERANGE && sys_readable_all(range, sizeof(*range)) ? (int)range->src_fd : -1;
}

/* Requests on an open file that concern the descriptor or a terminal, not the data; isatty() is one of them. */
static bool harmless(unsigned request)
{
	return request == TCGETS || request == TIOCGWINSZ || request == TIOCGPGRP || request == FIOCLEX ||
	       request == FIONCLEX;
}

/*
 * FIDEDUPERANGE, EXT4_IOC_MOVE_EXT and XFS_IOC_EXCHANGE_RANGE name more files: they are rare, so everything is made
 * true for them.
 */
static bool names_more_files(unsigned request)
{
	return request == FIDEDUPERANGE || (_IOC_TYPE(request) == 'f' && _IOC_NR(request) == 15) ||
	       (_IOC_TYPE(request) == 'X' && _IOC_NR(request) == 129);
}

long do_ioctl(const struct request *q)
{
	const unsigned request = (unsigned)q->a[1];
	const bool more = names_more_files(request);
	long r;

	if (harmless(request))
		return pl_make(q);
	if (more) {
		sfs_all_true();
		sfs_snapshots_bar();
	}
	r = with_both_true(q, other_fd(request, (const void *)q->a[2]), pl_fd(q));
	if (more)
		sfs_snapshots_allow();
	return r;
}

/* A mapped file is the kernel's for good: the program's loads and stores do not pass by us. */
long do_mmap(const struct request *q)
{
	const int fd = pl_fd(q);
	long r = 0;

	if (!(q->a[3] & MAP_ANONYMOUS) && sfs_ours(fd)) {
		r = sfs_make_true(fd, true);
		if (r >= 0)
			r = sfs_mapped(fd);
	}
	return r < 0 ? r : pl_make(q);
}

/* RLIMIT_FSIZE of this process, as the call is to set it. */
static bool sets_file_size(const struct request *q, struct rlimit *to)
{
	const bool of_process = q->call == PL_prlimit;
	const int pid = of_process ? (int)q->a[0] : 0;
	const int resource = (int)q->a[of_process];
	const void *const new = (const void *)q->a[1 + of_process];

	return resource == RLIMIT_FSIZE && (pid == 0 || pid == sys_getpid()) && new &&sfs_copy(to, new, sizeof(*to));
}

/* A new limit on file sizes holds for the writes that we serve, too. */
long do_limits(const struct request *q)
{
	struct rlimit to;
	long r;

	if (sets_file_size(q, &to))
		sfs_limit_coming(to.rlim_cur);
	r = pl_make(q);
	sfs_limits_changed();
	return r;
}

/*
 * Asynchronous I/O: the kernel, or a thread inside the C library, reads and writes later. The file is the kernel's for
 * good.
 */
static long hand_over(int fd)
{
	return sfs_ours(fd) ? pl_hand_over(fd) : 0;
}

/* The place of the descriptor is that of the control block. */
long do_aio(const struct request *q)
{
	const struct aiocb *cb = (const struct aiocb *)q->a[pl_rows[q->call].fd - 1];
	const long r = hand_over(cb->aio_fildes);

	return r < 0 ? r : pl_make(q);
}

long do_lio_listio(const struct request *q)
{
	struct aiocb *const *list = (struct aiocb *const *)q->a[1];
	long r = 0;

	for (int i = 0; i < (int)q->a[2] && r >= 0; i++)
		r = list[i] ? hand_over(list[i]->aio_fildes) : 0;
	return r < 0 ? r : pl_make(q);
}

/* libaio's. What can't be read is for the kernel to refuse. */
long do_io_submit(const struct request *q)
{
	struct iocb *const *list = (struct iocb *const *)q->a[2];
	long r = 0;

	for (long i = 0; i < q->a[1] && r >= 0; i++) {
		if (!sys_readable_all(&list[i], sizeof(list[i])) || !sys_readable_all(list[i], sizeof(*list[i])))
			break;
		r = hand_over((int)list[i]->aio_fildes);
	}
	return r < 0 ? r : pl_make(q);
}

/*
 * liburing makes its system calls inline, and submissions are not calls at all: with a ring, nothing is staged any
 * more.
 */
long do_ring(const struct request *q)
{
	sfs_stop_staging();
	return pl_make(q);
}
