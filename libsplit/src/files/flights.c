/* SPDX-License-Identifier: Apache-2.0 */
/* Writes that are being copied, and what ends them. */
#include "base/sys.h"
#include "files/inode.h"

#define PAUSES	 10
#define PAUSE_NS 50000

bool sfs_inode_trylock(struct sfs_inode *in)
{
	if (!sfs_mutex_try(&in->lock))
		return false;
	sfs_change_begin(in, 0, UINT64_MAX, SFS_CHANGES_ALONE);
	return true;
}

bool sfs_inode_lock_soon(struct sfs_inode *in)
{
	bool got = sfs_inode_trylock(in);

	for (int i = 0; i < PAUSES && !got; i++) {
		sys_nap(PAUSE_NS);
		got = sfs_inode_trylock(in);
	}
	return got;
}

bool sfs_kernel_calls_end(struct sfs_inode *in)
{
	__atomic_add_fetch(&in->wanted, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < PAUSES && in->by_kernel > 0; i++) {
		sfs_inode_unlock(in);
		sys_nap(PAUSE_NS);
		sfs_inode_lock(in);
	}
	__atomic_sub_fetch(&in->wanted, 1, __ATOMIC_RELAXED);
	return in->by_kernel == 0;
}

bool sfs_stores_meet(const struct sfs_inode *in, uint64_t from, uint64_t to)
{
	const struct sfs_flights *f = &in->flights;

	for (uint32_t bits = f->used; bits; bits &= bits - 1) {
		const struct sfs_flight *fl = &f->flight[__builtin_ctz(bits)];

		if (from < fl->to && fl->from < to && fl->thread != sfs_self())
			return true;
	}
	return false;
}

void sfs_stores_void(struct sfs_inode *in, uint64_t from, uint64_t to)
{
	struct sfs_flights *f = &in->flights;

	for (uint32_t bits = f->used; bits; bits &= bits - 1) {
		struct sfs_flight *fl = &f->flight[__builtin_ctz(bits)];

		if (from < fl->to && fl->from < to)
			fl->voided = true;
	}
}

void sfs_flights_void(struct sfs_inode *in)
{
	struct sfs_flights *f = &in->flights;

	for (uint32_t bits = f->used; bits; bits &= bits - 1)
		f->flight[__builtin_ctz(bits)].voided = true;
}

void sfs_flights_forget(struct sfs_inode *in)
{
	const uint64_t changes = (in->flights.changes / SFS_CHANGES_ONE + 1) * SFS_CHANGES_ONE;

	in->flights = (struct sfs_flights){.changes = changes};
	in->by_kernel = in->changing = in->locking = in->leasing = 0;
}

void sfs_inode_unmap(struct sfs_inode *in)
{
	sfs_stores_void(in, 0, UINT64_MAX);
	if (in->flights.changes & SFS_CHANGES_STORES)
		sfs_window_bar(&in->window);
	else
		sfs_window_unmap(&in->window);
}
