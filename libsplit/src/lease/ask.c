/* SPDX-License-Identifier: Apache-2.0 */
#include "lease/ask.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/sys.h"
#include "fds/own.h"
#include "lease/hello.h"

#define AWAY_TRIES  30 /* an agent that restarts is waited for so long */
#define AWAY_NAP_NS 100000000l
#define CLAIM_TRIES 1000
#define PEEK_NS	    1000000l   /* far less than an agent takes from its start to the first grant */
#define SILENT_NS   200000000l /* ten times as long as it waits for the answer (hello.c) */

void sfs_owners_map(struct sfs_volume *vol, int fd)
{
	void *p;

	if (!vol->owners && fd >= 0) {
		p = sys_mmap(NULL, SFS_OWNERS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		if (!sys_is_err(p))
			store_release(&vol->owners, (const uint64_t *)p);
	}
	if (fd >= 0)
		sfs_private_close(fd);
}

/* Any descriptor of the file system is proof enough for the agent. */
static int proof_of(const struct sfs_volume *vol)
{
	struct sfs_limit l;
	int fd;

	sfs_limit_lift(&l, 1);
	fd = sfs_limit_move(&l, sys_openat(AT_FDCWD, vol->dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
	sfs_limit_set_back(&l);
	return fd;
}

bool sfs_owners_peek(struct sfs_volume *vol)
{
	int proof, fd = -EAGAIN;

	if (load_acquire(&vol->agent.peeked) || sys_now_ns() < __atomic_load_n(&vol->agent.peek_again, __ATOMIC_RELAXED) ||
	    __atomic_exchange_n(&vol->agent.peeked, true, __ATOMIC_ACQ_REL))
		return false;
	proof = proof_of(vol);
	if (proof >= 0) {
		fd = sfs_hello_peek(vol, proof);
		sfs_private_close(proof);
	}
	if (fd >= 0)
		sfs_owners_map(vol, fd);
	if (fd == -EAGAIN || fd == -ETIMEDOUT) {
		__atomic_store_n(&vol->agent.peek_again, sys_now_ns() + (fd == -EAGAIN ? PEEK_NS : SILENT_NS),
				 __ATOMIC_RELAXED);
		store_release(&vol->agent.peeked, false);
	}
	return load_acquire(&vol->owners);
}

/* A client of the agent asks; one that has only peeked becomes one. */
static bool client(struct sfs_volume *vol)
{
	int proof, r;

	if (likely(load_acquire(&vol->agent.state) == VOL_READY))
		return true;
	proof = proof_of(vol);
	r = proof < 0 ? proof : sfs_volume_connect(vol, proof);
	if (proof >= 0)
		sfs_private_close(proof);
	return r == 0;
}

/* ---- questions ---- */

/* A place for a question, with its number; NULL: there are too many. */
static struct sfs_look_wait *wait_new(struct sfs_volume *vol)
{
	for (unsigned i = 0; i < SFS_LOOK_WAITS; i++) {
		struct sfs_look_wait *w = &vol->agent.looks[i];
		uint64_t none = 0;

		if (__atomic_compare_exchange_n(&w->number, &none,
						__atomic_add_fetch(&vol->agent.look_number, 1, __ATOMIC_RELAXED), false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return w;
	}
	return NULL;
}

static void wait_free(struct sfs_look_wait *w)
{
	store_release(&w->number, 0);
}

static void answered(struct sfs_look_wait *w, uint64_t number, int status, uint32_t at)
{
	w->status = status;
	w->at = at;
	store_release(&w->done, (uint32_t)number);
	sys_call3(SYS_futex, (long)&w->done, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
}

void sfs_answered(struct sfs_volume *vol, const struct sfs_msg *m)
{
	for (unsigned i = 0; i < SFS_LOOK_WAITS; i++)
		if (load_acquire(&vol->agent.looks[i].number) == m->d)
			answered(&vol->agent.looks[i], m->d, m->status, (uint32_t)m->c);
}

void sfs_asks_forget(struct sfs_volume *vol)
{
	/* One of this thread that a handler has interrupted, and that the kernel would go on with, sees another word. */
	for (unsigned i = 0; i < SFS_LOOK_WAITS; i++)
		vol->agent.looks[i] = (struct sfs_look_wait){.done = vol->agent.looks[i].done ^ 1u << 31};
}

void sfs_asks_end(struct sfs_volume *vol)
{
	for (unsigned i = 0; i < SFS_LOOK_WAITS; i++) {
		const uint64_t number = load_acquire(&vol->agent.looks[i].number);

		if (number)
			answered(&vol->agent.looks[i], number, -ENOTCONN, 0);
	}
}

/* One question and its answer; -ENOTCONN: the agent has gone, or there is none. */
static int ask(struct sfs_volume *vol, uint64_t ino, unsigned flags, uint32_t *at)
{
	struct sfs_msg m = {.type = SFS_MSG_LOOK, .a = ino, .c = flags};
	struct sfs_look_wait *w = wait_new(vol);
	int r;

	if (!w)
		return -EAGAIN;
	m.d = w->number;
	r = sfs_agent_tell(vol, &m);
	while (r == 0) {
		const uint32_t seen = load_acquire(&w->done);

		/* A handler has forked: in the child nobody answers. */
		if (load_acquire(&w->number) != m.d)
			return -EINTR;
		if (seen == (uint32_t)m.d) {
			r = w->status;
			*at = w->at;
			break;
		}
		/* Without a time limit, so that the kernel goes on with the wait after a handler with SA_RESTART. */
		if (sys_call4(SYS_futex, (long)&w->done, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, 0) == -EINTR)
			r = -EINTR;
	}
	wait_free(w);
	return r;
}

/* An interruptible pause. */
static int nap(long ns)
{
	const struct timespec t = {0, ns};

	return (int)sys_call2(SYS_nanosleep, (long)&t, 0);
}

int sfs_ask(struct sfs_volume *vol, struct sfs_grant *g, uint64_t ino, unsigned flags)
{
	uint32_t at = 0;
	int r;

	for (int try = 0;; try++) {
		r = client(vol) && sfs_service_start() == 0 ? ask(vol, ino, flags, &at) : -ENOTCONN;
		if (r == 0)
			__atomic_store_n(&vol->agent.gone, false, __ATOMIC_RELAXED);
		if (r != -ENOTCONN && r != -EAGAIN)
			break;
		if (try == AWAY_TRIES || __atomic_load_n(&vol->agent.gone, __ATOMIC_RELAXED)) {
			/* The service thread finds out when it is back. */
			__atomic_store_n(&vol->agent.gone, true, __ATOMIC_RELAXED);
			r = -ENOTCONN;
			break;
		}
		if (nap(r == -EAGAIN ? AWAY_NAP_NS / 100 : AWAY_NAP_NS) == -EINTR)
			return -EINTR;
	}
	if (r == 0 && g)
		__atomic_store_n(&g->looked, sfs_asked(ino, flags, at), __ATOMIC_RELAXED);
	return r;
}

int sfs_ask_first(struct sfs_volume *vol, struct sfs_grant *g, uint64_t ino)
{
	int r;

	if (likely(sfs_owners_clean(vol, g, ino)))
		return 0;
	r = sfs_ask(vol, g, ino, 0);
	return r == -ENOTCONN ? 0 : r == -ETIMEDOUT ? -EIO : r;
}

/* ---- claims ---- */

/* A full fence between the claim and what is looked at next. */
static uint64_t *announce_open(struct sfs_claims *t, uint64_t ino)
{
	const uint32_t first = sfs_thread_hash() % SFS_CLAIMS;

	for (uint32_t i = 0; i < SFS_CLAIMS; i++) {
		uint64_t *place = &t->claim[(first + i) % SFS_CLAIMS].ino, none = 0;

		if (__atomic_load_n(place, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(place, &none, ino, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return place;
	}
	__atomic_add_fetch(&t->unnamed, 1, __ATOMIC_SEQ_CST);
	return &t->unnamed;
}

static uint64_t *announce(struct sfs_claims *t, uint64_t ino)
{
	const uint32_t rights = sfs_protect_open();
	uint64_t *const place = announce_open(t, ino);

	sfs_protect_close(rights);
	return place;
}

void sfs_unclaim(struct sfs_claim_held *c)
{
	uint32_t rights;

	if (c->place && likely(c->forks == sfs.forks)) {
		rights = sfs_protect_open();
		if (c->place == &c->vol->claims->unnamed)
			__atomic_sub_fetch(c->place, 1, __ATOMIC_SEQ_CST);
		else
			store_release(c->place, 0);
		sfs_protect_close(rights);
	}
	c->place = NULL;
}

/* Does nobody else even remember what the file is like? */
static bool unowned(const struct sfs_volume *vol, const struct sfs_grant *g, uint64_t ino)
{
	const uint64_t word = __atomic_load_n(&vol->owners[sfs_owners_index(ino)], __ATOMIC_SEQ_CST);

	return !sfs_owners_any(word) || sfs_asked_at(g, ino, sfs_owners_number(word), SFS_LOOK_CHANGE);
}

void sfs_claim_only(struct sfs_volume *vol, uint64_t ino, struct sfs_claim_held *c)
{
	c->vol = vol;
	c->forks = sfs.forks;
	c->place = announce(vol->claims, ino);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

int sfs_claim(struct sfs_volume *vol, struct sfs_grant *g, uint64_t ino, struct sfs_claim_held *c)
{
	for (int try = 0; try < CLAIM_TRIES; try++) {
		int r;

		sfs_claim_only(vol, ino, c);
		if (likely(unowned(vol, g, ino)))
			return 0;
		sfs_unclaim(c);
		r = sfs_ask(vol, g, ino, SFS_LOOK_CHANGE);
		if (r < 0)
			return r == -EINTR || r == -ENOSPC ? r : -EIO; /* writing beside who stages loses bytes of either */
	}
	return -EIO;
}

bool sfs_claim_named(const struct sfs_volume *vol, uint64_t ino)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < SFS_CLAIMS; i++)
		if (__atomic_load_n(&vol->claims->claim[i].ino, __ATOMIC_SEQ_CST) == ino)
			return true;
	return false;
}

bool sfs_claimed_here(const struct sfs_volume *vol, uint64_t ino)
{
	return sfs_claim_named(vol, ino) || __atomic_load_n(&vol->claims->unnamed, __ATOMIC_SEQ_CST) > 0;
}
