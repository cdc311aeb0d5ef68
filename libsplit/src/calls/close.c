/* SPDX-License-Identifier: Apache-2.0 */
/* close(2), close_range(2), and descriptors that somebody else closes. */
#include "calls/attach.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "files/kernel_offset.h"

/*
 * What is staged is relinked before the kernel closes the descriptor, which drops the process's locks. A call of another thread that comes meanwhile
 * finds it closed: it would go on where the kernel's offset has been left.
 */
static int close_known(int fd)
{
	const uint64_t signals = sfs_signals_block();
	struct sfs_ofd *ofd, *change = sfs_fds_change(fd, &ofd);
	int r = -EBADF, k;

	if (change) {
		if (ofd > SFS_PRIVATE)
			sfs_kernel_offset_drain(ofd);
		store_release(&sfs_fds_fresh[fd], false);
		r = ofd > SFS_PRIVATE ? sfs_ofd_put(ofd) : 0;
		k = sys_close(fd);
		sfs_fds_changed(fd, change, NULL);
		r = k < 0 ? k : r;
	}
	sfs_signals_restore(signals);
	return r;
}

int sfs_close(int fd)
{
	struct sfs_ofd *ofd;

	sfs_check_fork();
	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return SFS_PASS;
	ofd = load_acquire(&sfs_fds[fd]);
	if (ofd > SFS_FOREIGN)
		return ofd == SFS_PRIVATE ? -EBADF : close_known(fd);
	store_release(&sfs_fds_fresh[fd], false);
	sfs_fds_written(fd);
	if (__atomic_compare_exchange_n(&sfs_fds[fd], &ofd, NULL, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return SFS_PASS;
	return ofd == SFS_PRIVATE ? -EBADF : close_known(fd); /* another thread has used it for the first time */
}

void sfs_forget(int fd)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);

	if (!ofd)
		return;
	sfs_true_to_look(fd);
	sfs_detach(fd);
}

/* The next number, fd or above, of which something may be known; ~0u: there is none. Between the program's and our own is a gap. */
static unsigned next_known(unsigned fd)
{
	const int known = load_acquire(&sfs_fdt.known_max), from = load_acquire(&sfs_fdt.private_min),
		  to = load_acquire(&sfs_fdt.private_max);

	if ((int)fd < 0)
		return ~0u;
	if ((int)fd <= known || ((int)fd >= from && (int)fd <= to))
		return fd;
	return (int)fd < from && from <= to ? (unsigned)from : ~0u;
}

void sfs_replaced(int fd)
{
	sfs_detach(fd);
}

int sfs_close_range(unsigned first, unsigned last, unsigned flags)
{
	if (!sfs_fds || first > last || (flags & ~4u) || (flags & 4u)) /* CLOSE_RANGE_CLOEXEC closes nothing now */
		return SFS_PASS;
	for (unsigned fd = next_known(first); fd <= last && fd < (unsigned)sfs_fds_len; fd = next_known(fd + 1)) {
		struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd > SFS_PRIVATE || sfs_fds_changing(ofd)) {
			sfs_close((int)fd);
		} else if (ofd != SFS_PRIVATE) {
			if (sfs_fds_fresh[fd]) {
				store_release(&sfs_fds_fresh[fd], false);
				sfs_fds_written((int)fd);
			}
			/* It may have become one of ours meanwhile. */
			if (ofd)
				__atomic_compare_exchange_n(&sfs_fds[fd], &ofd, NULL, false, __ATOMIC_ACQ_REL,
							    __ATOMIC_RELAXED);
		}
	}
	return sfs_close_all_but_ours(first, last);
}
