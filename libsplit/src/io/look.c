/* SPDX-License-Identifier: Apache-2.0 */
#include "io/look.h"

bool sfs_look_met(const struct sfs_inode *in, uint64_t seen, uint64_t from, uint64_t to)
{
	const struct sfs_flights *f = &in->flights;
	uint64_t now = load_acquire(&f->changes) / SFS_CHANGES_ONE;
	const uint64_t before = seen / SFS_CHANGES_ONE;
	bool met = false;

	/* The event after the last one may be being stored. */
	if (now - before >= SFS_EVENTS - 1)
		return true;
	for (uint64_t i = before + 1; i <= now && !met; i++) {
		const uint64_t a = __atomic_load_n(&f->event[i % SFS_EVENTS].from, __ATOMIC_RELAXED);
		const uint64_t b = __atomic_load_n(&f->event[i % SFS_EVENTS].to, __ATOMIC_RELAXED);

		met = from < b && a < to;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	now = __atomic_load_n(&f->changes, __ATOMIC_RELAXED) / SFS_CHANGES_ONE;
	return met || now - before >= SFS_EVENTS - 1;
}

void sfs_make_visible(struct sfs_inode *in, uint64_t seen)
{
	const uint64_t size = load_acquire(&in->size);

	sfs_all_threads_fence();
	__atomic_store_n(&in->visible, (seen / SFS_CHANGES_ONE) << SFS_VISIBLE_SHIFT | size, __ATOMIC_RELAXED);
}
