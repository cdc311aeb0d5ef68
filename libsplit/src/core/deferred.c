/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that come in the middle of a call. Of a call that the kernel serves a handler sees the beginning or the end: reads and writes of
 * files are not interrupted. So it is here: a handler for which sfs_defer() answers yes is not called, and sfs_deliver(), at the end of the
 * call, sends the thread the signal once more (base/deferred.h). In between, the signals that are put off like this are blocked.
 */
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "base/sys.h"
#include "core/state.h"

#define SLOTS 64u /* in all threads; who finds none is interrupted */

static struct deferred {
	void *thread;  /* NULL: free; atomic */
	int signal;    /* 0: not yet, or no more */
	uint64_t mask; /* what the thread had blocked */
	uint64_t more; /* what it has blocked since */
	siginfo_t info;
} slots[SLOTS];

uint32_t sfs_deferred;

/* Linker symbols: the ends of our own code. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

/*
 * Is this thread in the middle of a call on some file? By its marks (struct sfs_ops), and where calls go without by the lock that is its own.
 */
static bool inside(void)
{
	const uintptr_t self = (uintptr_t)sfs_self() * SFS_HASH_FACTOR;
	const uint64_t *marks = &sfs_ops[sfs_thread_hash() % SFS_OPS];

	for (const struct sfs_slab *s = load_acquire(&sfs.slabs); s; s = s->next) {
		for (int i = 0; i < SFS_OP_PROBES; i++) {
			/* The lowest bit is lost in a mark, and 0 in a pointer. */
			const uintptr_t at =
				((__atomic_load_n(&marks[i], __ATOMIC_RELAXED) ^ self) & ~(uintptr_t)1) - (uintptr_t)s->inodes;

			if (at < sizeof(s->inodes) && at % sizeof(s->inodes[0]) == 0)
				return true;
		}
		for (unsigned i = 0; i < SFS_SLAB_INODES; i++)
			if (sfs_bias_mine(&s->inodes[i].lock.bias))
				return true;
	}
	return false;
}

static struct deferred *claim(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		void *nobody = NULL;

		if (__atomic_compare_exchange_n(&slots[i].thread, &nobody, sfs_self(), false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return &slots[i];
	}
	return NULL;
}

bool sfs_defer(int sig, const siginfo_t *info, ucontext_t *at, uint64_t block)
{
	const uintptr_t pc = SFS_PC(&at->uc_mcontext);
	struct deferred *d;
	uint64_t mask;

	/* All that is done in a call is our own code. */
	if (pc < (uintptr_t)__ehdr_start || pc >= (uintptr_t)etext || !inside())
		return false;
	d = claim();
	if (!d)
		return false;
	/* The kernel's mask has 64 bits, whatever room the C library gives it. It becomes the thread's when the handler returns. */
	memcpy(&mask, &at->uc_sigmask, sizeof(mask));
	d->mask = mask;
	d->more = block;
	d->info = *info;
	mask |= block;
	memcpy(&at->uc_sigmask, &mask, sizeof(mask));
	__atomic_store_n(&d->signal, sig, __ATOMIC_RELEASE);
	__atomic_add_fetch(&sfs_deferred, 1, __ATOMIC_RELAXED);
	return true;
}

static bool is_mine(const struct deferred *d)
{
	return __atomic_load_n(&d->thread, __ATOMIC_RELAXED) == sfs_self() && d->signal != 0;
}

uint64_t sfs_mask_without(uint64_t mask)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (is_mine(&slots[i]))
			mask &= slots[i].mask;
	return mask;
}

uint64_t sfs_mask_with(uint64_t mask)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (is_mine(&slots[i]))
			mask |= slots[i].more;
	return mask;
}

/*
 * Those of this thread are blocked, so that all are there before the first handler runs. There can be several, when one came in the middle
 * of putting off another: the first had the mask of the interrupted call, the others that of a handler, which blocks more.
 */
void sfs_deliver(void)
{
	uint64_t mask = ~0ull;
	bool any = false;

	/* In the middle of another call, or where all signals are blocked: there it is looked again, at the end. */
	if (inside() || sfs_signals_blocked())
		return;
	for (unsigned i = 0; i < SLOTS; i++) {
		struct deferred *d = &slots[i];

		if (!is_mine(d))
			continue;
		/* With what is known of its sender; where too many are queued already, without. */
		if (sys_call4(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_call0(SYS_gettid), d->signal, (long)&d->info) < 0)
			sys_call3(SYS_tgkill, sys_getpid(), sys_call0(SYS_gettid), d->signal);
		mask &= d->mask;
		any = true;
		d->signal = 0;
		__atomic_store_n(&d->thread, NULL, __ATOMIC_RELEASE);
		__atomic_sub_fetch(&sfs_deferred, 1, __ATOMIC_RELAXED);
	}
	if (any)
		sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask));
}

void sfs_deferred_forget(void)
{
	memset(slots, 0, sizeof(slots));
	sfs_deferred = 0;
}
