/* SPDX-License-Identifier: Apache-2.0 */
#include "lease/opening.h"

#include <stddef.h>

#include "base/protect.h"
#include "base/sys.h"
#include "lease/ask.h"

#define THREADS 64

/*
 * The numbers of threads, which only the kernel knows: in the upper half what a thread is known by here, in the lower one its number. It may be that of a
 * thread which has ended. The agent does not find the announcement then, and looks at the process.
 */
static uint64_t numbers[THREADS];

static uint32_t number(void)
{
	const uint64_t key = ((uint64_t)((uintptr_t)sfs_self() >> 6) + sfs.forks * SFS_HASH_FACTOR) << 32;
	uint64_t *n = &numbers[sfs_thread_hash() % THREADS];
	uint64_t known = __atomic_load_n(n, __ATOMIC_RELAXED);

	if (unlikely((known & ~(uint64_t)UINT32_MAX) != key)) {
		known = key | (uint32_t)sys_call0(SYS_gettid);
		__atomic_store_n(n, known, __ATOMIC_RELAXED);
	}
	return (uint32_t)known;
}

static void say(uint32_t *place, uint32_t thread)
{
	const uint32_t rights = sfs_protect_open();

	store_release(place, thread);
	sfs_protect_close(rights);
}

struct sfs_opening sfs_opening(void)
{
	struct sfs_volume *vol = &sfs.volumes[0];
	const uint64_t *owners = load_acquire(&vol->owners);
	struct sfs_claims *claims = load_acquire(&vol->claims);
	struct sfs_opening o = {NULL, sfs.forks};
	struct sfs_log_header *h;
	uint32_t thread;

	if (sfs.nvolumes != 1 || !owners || !claims || likely(sfs_owners_stagers(load_acquire(&owners[SFS_OWNERS_ALL])) == 0))
		return o;
	h = (struct sfs_log_header *)((char *)claims - offsetof(struct sfs_log_header, claims));
	thread = number();
	o.place = &h->opening[sfs_opening_place(thread)];
	say(o.place, thread);
	return o;
}

void sfs_opened(struct sfs_opening o)
{
	if (likely(!o.place))
		return;
	sfs_check_fork();
	if (o.forks == sfs.forks)
		say(o.place, 0);
}
