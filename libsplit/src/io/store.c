/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast way of a write over bytes that the file has, through its window, by a thread that has the file to itself most of the time: what
 * io/attempt.c does, without everything that can't be the case. It is copied in flight.
 */
#include "base/fault.h"
#include "base/sys.h"
#include "io/attempt.h"
#include "io/io.h"
#include "pm/pm.h"

struct store {
	uint8_t *at;
	const void *buf;
	size_t n;
};

static void copy(void *arg)
{
	const struct store *s = arg;

	pm_copy(s->at, s->buf, s->n);
}

/* Is there nothing to fault in before the store? A program that writes on and on has that done for many pages at once. */
static inline bool no_fault_ahead(struct sfs_window *w, uint64_t pos, uint64_t end)
{
	if (pos == w->last_end && end > w->populated)
		return false;
	w->last_end = end;
	return true;
}

/* Is fd still this description, of this file, and the write such a store? Lock held. */
static inline bool plan(struct sfs_ofd *ofd, int fd, uint64_t pos, size_t n, struct sfs_flying *fly)
{
	struct sfs_inode *in = ofd->inode;

	if (!sfs_fd_still(fd, ofd, in) || !sfs_may_write(ofd->flags) || (ofd->flags & (O_APPEND | O_SYNC | O_DSYNC)) ||
	    sfs_ofd_shared(ofd) || !sfs_io_prepared(in) || in->privileged || in->grant.state == GRANT_ONCE ||
	    sfs_kernel_busy(in) || (unlikely(in->flights.used) && !sfs_flights_none(in)) ||
	    __atomic_load_n(&in->flights.quiet, __ATOMIC_RELAXED) || in->window.few_stores || !sfs_in_place(in, pos, n) ||
	    sfs_too_far(pos + n) || !no_fault_ahead(&in->window, pos, pos + n) || !sfs_flight_begin(in, fly))
		return false;
	sfs_flight_stores(in, fly, pos, pos + n);
	return true;
}

bool sfs_store(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off)
{
	struct sfs_inode *in = ofd->inode;
	struct store s = {NULL, buf, n};
	struct sfs_flying fly;
	struct sfs_fault f;
	uint32_t forks;
	uint64_t *op;
	bool ok;

	sfs_check_fork();
	if (n <= SFS_STORE_MAX || n >= SFS_COLD_LONG || in->vol->mode == SFS_STRICT || !sfs_bias_take(&in->lock.bias))
		return false;
	forks = sfs.forks;
	ok = plan(ofd, fd, (uint64_t)off, n, &fly);
	if (ok)
		s.at = in->window.base + off;
	sfs_bias_drop(&in->lock.bias);
	sfs_op_end(NULL);
	if (!ok)
		return false;
	ok = sfs_try(copy, &s, &f);
	pm_fence();
	if (sfs_is_child(forks))
		return true;
	if (unlikely(!sfs_op_begin(in, &op)))
		return false;
	sfs_inode_take(in);
	ok = ok && sfs_flight_holds(&fly);
	sfs_flight_end(in, &fly);
	if (likely(ok)) {
		in->touched = true;
		in->window.stores++;
		sfs_count_write(&in->vol->log, false, n);
	}
	sfs_inode_drop(in);
	sfs_op_end(op);
	return ok;
}
