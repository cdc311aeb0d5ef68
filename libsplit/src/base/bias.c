/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bias.h"

#include <linux/membarrier.h>
#include <sched.h>

#include "base/sys.h"

#define DOUBLINGS_MAX 12u
#define WORTH_IT      256u /* uses of a bias that pay for taking it away */

static uint32_t enabled;

static int membarrier(int command)
{
	return (int)sys_call3(SYS_membarrier, command, 0, 0);
}

int sfs_bias_enable(void)
{
	int err = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);

	__atomic_store_n(&enabled, err == 0, __ATOMIC_RELEASE);
	return err;
}

/* Lock held exclusively by its own word, so nobody is revoking. */
void sfs_bias_grant(struct sfs_bias *b)
{
	b->streak = 0;
	if (!__atomic_load_n(&enabled, __ATOMIC_ACQUIRE) || __atomic_load_n(&b->owner, __ATOMIC_RELAXED) ||
	    (b->candidate && b->candidate != sfs_self()))
		return;
	b->candidate = sfs_self();
	__atomic_store_n(&b->uses, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&b->owner, sfs_self(), __ATOMIC_RELEASE);
}

void sfs_all_threads_fence(void)
{
	if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
		return;
	/* Registered by a parent before fork, or forbidden since (a seccomp filter). */
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
		return;
	/* No bias from now on; for this one: store buffers empty themselves within microseconds, at the next tick for certain. */
	__atomic_store_n(&enabled, 0, __ATOMIC_RELEASE);
	sys_nap(20 * 1000 * 1000);
}

/* Called with the lock proper held, by several threads at once when it is held shared: each does it all. */
void sfs_bias_revoke(struct sfs_bias *b, bool wait)
{
	uint32_t n = __atomic_load_n(&b->doublings, __ATOMIC_RELAXED);

	__atomic_store_n(&b->owner, SFS_BIAS_REVOKING, __ATOMIC_SEQ_CST);
	sfs_all_threads_fence();
	for (int i = 0;; i++) {
		void *held = __atomic_load_n(&b->held, __ATOMIC_ACQUIRE);

		if (!held)
			break;
		if (!wait)
			return; /* the next one who takes the lock goes on */
		if (i < 100)
			sfs_relax();
		else if (i < 110)
			sys_call0(SYS_sched_yield);
		else
			sys_nap(i < 200 ? 50 * 1000 : 1000 * 1000);
	}
	sfs_all_threads_fence();
	if (__atomic_load_n(&b->uses, __ATOMIC_RELAXED) < WORTH_IT)
		n = n < DOUBLINGS_MAX ? n + 1 : n;
	else
		n = n > 0 ? n - 1 : 0;
	__atomic_store_n(&b->doublings, n, __ATOMIC_RELAXED);
	__atomic_store_n(&b->owner, NULL, __ATOMIC_RELEASE);
}
