/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that come in the middle of a call. Of a call that the kernel serves a handler sees the beginning or the end: reads and writes of
 * files are not interrupted. So it is here: a handler for which sfs_defer() answers yes is not called. At the end of the call the thread is
 * sent the signal once more; or, where signals come in the order in which they were sent, the handler is called. In between, the
 * signals that are put off like this are blocked.
 */
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "base/code.h"
#include "base/sys.h"
#include "calls/calls.h"
#include "files/inode.h"

#define SLOTS	   64u /* in all threads; who finds none is interrupted */
#define REALTIME   32  /* the kernel's first one: these are queued */
#define LOCK_OWNED (1u << SFS_OP_PROBES)
#define MARKS	   (LOCK_OWNED - 1)

static void *threads[SLOTS]; /* whose the slot is, NULL: free; atomic */
static struct deferred {
	int signal;	 /* 0: not yet, or no more */
	int sent;	 /* 0, or it is on its way once more */
	uint32_t within; /* what said so, see signs() */
	uint64_t more;	 /* what the thread has blocked since, and had not before: this signal at least */
	siginfo_t info;
	ucontext_t at;
} slots[SLOTS];

uint32_t sfs_deferred;
sfs_call_handler_fn *sfs_call_handler;

/*
 * What says that this thread is in the middle of a call on some file: a bit for each of its marks (struct sfs_ops), and LOCK_OWNED where the lock
 * of one, its own, stands for a mark. What was left by a jump says so for ever.
 */
static uint32_t signs(bool locks)
{
	const uint64_t *marks = sfs_op_marks();
	uint32_t found = 0;

	for (struct sfs_slab *s = load_acquire(&sfs_files.slabs); s; s = s->next) {
		for (int i = 0; i < SFS_OP_PROBES; i++) {
			const uintptr_t at = sfs_op_inode(__atomic_load_n(&marks[i], __ATOMIC_RELAXED)) - (uintptr_t)s->inodes;

			if (at < sizeof(s->inodes) && at % sizeof(s->inodes[0]) == 0)
				found |= 1u << i;
		}
		if (!locks)
			continue;
		sfs_slab_each(in, s)
			found |= sfs_bias_mine(&in->lock.bias) ? LOCK_OWNED : 0;
	}
	return found;
}

/* True: it has been put off before, and what still says that this thread is in a call has been left by a jump. */
static bool sent(int sig, uint32_t within)
{
	bool yes = false;

	for (unsigned i = 0; i < SLOTS; i++) {
		if (__atomic_load_n(&threads[i], __ATOMIC_RELAXED) == sfs_self() && slots[i].sent == sig) {
			yes = yes || slots[i].within == within;
			slots[i].sent = 0;
			__atomic_store_n(&threads[i], NULL, __ATOMIC_RELEASE);
		}
	}
	return yes;
}

static struct deferred *claim(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		void *nobody = NULL;

		if (__atomic_compare_exchange_n(&threads[i], &nobody, sfs_self(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return &slots[i];
	}
	return NULL;
}

bool sfs_defer(int sig, const siginfo_t *info, ucontext_t *at, uint64_t block)
{
	const uintptr_t pc = SFS_PC(&at->uc_mcontext);
	struct deferred *d;
	uint32_t within;
	uint64_t mask;

	/* All that is done in a call is our own code. */
	if (pc < (uintptr_t)__ehdr_start || pc >= (uintptr_t)etext)
		return false;
	within = signs(true);
	d = within && !sent(sig, within) ? claim() : NULL;
	if (!d)
		return false;
	/* The kernel's mask has 64 bits, whatever room the C library gives it. */
	memcpy(&mask, &at->uc_sigmask, sizeof(mask));
	d->sent = 0;
	d->within = within;
	d->more = block & ~mask;
	d->info = *info;
	d->at = *at;
	/* It becomes the thread's when the handler has returned. On the way there none of them is to find other code than ours. */
	mask |= block;
	memcpy(&at->uc_sigmask, &mask, sizeof(mask));
	sys_sigmask(SIG_BLOCK, &block, NULL);
	__atomic_store_n(&d->signal, sig, __ATOMIC_RELEASE);
	__atomic_add_fetch(&sfs_deferred, 1, __ATOMIC_RELAXED);
	return true;
}

static bool is_mine(unsigned i)
{
	return __atomic_load_n(&threads[i], __ATOMIC_RELAXED) == sfs_self() && slots[i].signal != 0;
}

uint64_t sfs_blocked_meanwhile(void)
{
	uint64_t more = 0;

	for (unsigned i = 0; i < SLOTS; i++)
		if (is_mine(i))
			more |= slots[i].more;
	return more;
}

/*
 * Is the call over in the middle of which it came? When a mark is gone that was there, or where there was none the lock. Or when a call is over
 * that began later (`mark` is its own): calls do not begin within others, so what still stands has been left by a jump.
 */
static bool over(const struct deferred *d, bool call, const uint64_t *mark)
{
	const uint32_t had = d->within & MARKS ? d->within & MARKS : d->within;

	if (had & ~signs(had == LOCK_OWNED))
		return true;
	return call && (!mark || !(had & 1u << (mark - sfs_op_marks())));
}

static void send(struct deferred *d)
{
	const uint32_t within = signs(true);
	struct deferred *way = within ? claim() : NULL;

	if (way) {
		way->within = within;
		way->sent = d->signal;
	}
	if (sys_call4(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_call0(SYS_gettid), d->signal, (long)&d->info) == 0)
		return;
	sent(d->signal, 0);
	sfs_call_handler(d->signal, &d->info, &d->at, true);
}

/* Out of its slot, because a handler that is called may jump and never be back. With the mask that its thread is to have. */
static struct deferred take(unsigned i, uint64_t mask)
{
	struct deferred d = slots[i];

	memcpy(&d.at.uc_sigmask, &mask, sizeof(mask));
	SFS_FORGET_FP(&d.at.uc_mcontext);
	slots[i].signal = 0;
	__atomic_store_n(&threads[i], NULL, __ATOMIC_RELEASE);
	__atomic_sub_fetch(&sfs_deferred, 1, __ATOMIC_RELAXED);
	return d;
}

/*
 * Everything is blocked meanwhile, so that all are sent before the first handler runs. Queued signals arrive all, and in the order in which they
 * were sent, so that sending is no way: the handler is called. Not on another stack than this one, though, unless there is no room in the queue.
 */
void sfs_deliver(bool call, const uint64_t *mark)
{
	const uint64_t all = ~0ull;
	bool due = false;
	uint64_t mask = 0;

	if (!sfs_blocked_meanwhile() || sfs_signals_blocked())
		return; /* where they are blocked it is looked again at the end */
	for (unsigned i = 0; i < SLOTS; i++)
		due = due || (is_mine(i) && over(&slots[i], call, mark));
	if (!due)
		return;
	sys_sigmask(SIG_SETMASK, &all, &mask);
	mask &= ~sfs_blocked_meanwhile();
	for (unsigned i = 0; i < SLOTS; i++) {
		if (is_mine(i) && slots[i].signal < REALTIME) {
			struct deferred d = take(i, mask);

			send(&d);
		}
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		if (is_mine(i)) {
			struct deferred d = take(i, mask);

			if (!sfs_call_handler(d.signal, &d.info, &d.at, false))
				send(&d);
			/* A handler may change it. */
			memcpy(&mask, &d.at.uc_sigmask, sizeof(mask));
		}
	}
	sys_sigmask(SIG_SETMASK, &mask, NULL);
}

void sfs_deferred_forget(void)
{
	memset(threads, 0, sizeof(threads));
	sfs_deferred = 0;
}
