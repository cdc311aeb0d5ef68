/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enumeration. At every point of a trace where something new may be lost (before a fence, an fsync and a metadata operation, and where
 * calls begin and end) the states are: a prefix of the metadata operations, times a version of each pending cache line. All of them
 * where they are few, otherwise: nothing and everything, each line's versions alone, all lines but one, pairs, all but two,
 * prefixes in the order of the stores, and some by a seeded choice. A state that was met before with the same expectation is not
 * checked again.
 */
#include "crash/explore.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "crash/agent.h"
#include "harness.h"

#define COARSE 48u /* lines; of more each has three versions */
#define PICKS  4096u

static struct tally *tally;

/* What is explored at the moment. */
static struct {
	struct run *r;
	const struct explore_how *how;
	uint64_t rnd;
	uint64_t violations;
	uint32_t since_deep;
	struct sim sim[2]; /* the run, and a recovery */
	struct trace recovery;
	uint32_t dirty[KERN_BLOCKS];
	uint32_t ndirty;
	bool is_dirty[KERN_BLOCKS];
} x;

/* A point in a trace, and what must be found there. */
struct point {
	struct sim *s;
	enum crash_kind kind;
	uint8_t boot;
	int depth;
	uint32_t done;
	bool in_flight;
	uint64_t key; /* of the expectation */
};

struct tally *tally_make(uint32_t room)
{
	struct tally *t = mmap(NULL, sizeof(*t) + room * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(t != MAP_FAILED);
	t->room = room;
	return t;
}

/* True when it is new. */
static bool see(uint64_t hash)
{
	uint32_t i = (uint32_t)(hash >> 20) & (tally->room - 1);

	hash = hash ? hash : 1;
	for (uint32_t tries = 0; tries < 4096; tries++, i = (i + 1) & (tally->room - 1)) {
		uint64_t found = __atomic_load_n(&tally->seen[i], __ATOMIC_RELAXED);

		if (!found &&
		    __atomic_compare_exchange_n(&tally->seen[i], &found, hash, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
		if (found == hash)
			return false;
	}
	FAIL("the set of states is full");
}

static void on_touch(const uint8_t *p, size_t n, bool write)
{
	const size_t at = (size_t)(p - kern.pm);

	if (!write)
		return;
	for (size_t b = at / KERN_BLOCK; b <= (at + n - 1) / KERN_BLOCK; b++) {
		if (x.is_dirty[b])
			continue;
		x.is_dirty[b] = true;
		x.dirty[x.ndirty++] = (uint32_t)b;
	}
}

static void mount(const struct point *p, uint32_t meta)
{
	kern.m = p->s->t->meta[meta];
	kern.pm = p->s->work;
	kern.next_block = x.r->t.end_block > p->s->t->end_block ? x.r->t.end_block : p->s->t->end_block;
	kern_forget_process();
	agent_boot = p->boot;
	kern.on_touch = on_touch;
	kern_on = true;
}

/* The medium is what it was before recovery worked on it. */
static void restore(struct sim *s)
{
	kern_on = false;
	kern.on_touch = NULL;
	for (uint32_t i = 0; i < x.ndirty; i++) {
		const size_t at = (size_t)x.dirty[i] * KERN_BLOCK;

		memcpy(s->work + at, s->durable + at, KERN_BLOCK);
		x.is_dirty[x.dirty[i]] = false;
	}
	x.ndirty = 0;
}

static void apply(struct sim *s, const int *choice, uint32_t n, bool undo)
{
	for (uint32_t i = 0; i < n; i++) {
		const size_t at = (size_t)s->vs[i].line * LINE;

		memcpy(s->work + at, undo ? s->durable + at : s->vs[i].bytes[choice[i]], LINE);
	}
}

static void describe(const struct point *p, uint32_t meta, const int *choice, uint32_t n)
{
	const struct trace *t = p->s->t;
	static const char *const kinds[] = {"store",	"nt store", "kernel store", "flush", "fence",
					    "metadata", "sync",	    "commit",	    "begin", "end"};

	for (uint32_t i = 0; i < t->n; i++) {
		const struct event *e = &t->ev[i];

		if (i == p->s->pos)
			printf("  -- crash --\n");
		if (i + 60 < p->s->pos || i > p->s->pos + 3)
			continue;
		if (e->kind == EV_BEGIN || e->kind == EV_END)
			printf("  %5u %s call %u %s\n", i, kinds[e->kind], e->index, x.r->h.op[e->index].what);
		else if (e->kind == EV_META)
			printf("  %5u metadata operation %u%s\n", i, e->index,
			       e->index > meta		  ? " (lost)"
			       : e->index > p->s->meta_lo ? " (durable by chance)"
							  : "");
		else
			printf("  %5u %s ino %u block %u+%u, %u bytes, from %p\n", i, kinds[e->kind], e->ino,
			       e->at / KERN_BLOCK, e->at % KERN_BLOCK, e->len, e->site);
	}
	printf("  metadata durable up to %u of %u..%u; lines:\n", meta, p->s->meta_lo, p->s->meta_hi);
	for (uint32_t i = 0; i < n; i++)
		printf("    block %u+%u: version %d of 0..%d\n", p->s->vs[i].line * LINE / KERN_BLOCK,
		       p->s->vs[i].line * LINE % KERN_BLOCK, choice[i], p->s->vs[i].n - 1);
}

static void violation(const struct point *p, uint32_t meta, const int *choice, uint32_t n, uint64_t hash, const char *bad)
{
	__atomic_add_fetch(&tally->violations, 1, __ATOMIC_RELAXED);
	x.violations++;
	if (x.how->quiet)
		return;
	printf("VIOLATION: %s: %s after call %u (%s)%s, %s volume, provider %s: %s\n"
	       "  replay: test_explore --replay %s:%s:%s:%s --seed %llu --tries %u:%u:%u --state %016llx\n",
	       mode_name(x.r->mode), p->kind == CRASH_KILL ? "process death" : "power loss", p->done,
	       p->done ? x.r->h.op[p->done - 1].what : "nothing",
	       p->depth	      ? ", then inside recovery"
	       : p->in_flight ? ", inside the next"
			      : "",
	       x.r->dax ? "DAX" : "emulated", fs_name(x.r->fs), bad, mode_name(x.r->mode), fs_name(x.r->fs),
	       x.r->alone ? "alone"
	       : x.r->dax ? "dax"
			  : "emulated",
	       x.r->workload, (unsigned long long)x.how->seed, x.how->exhaustive, x.how->most, x.how->deep,
	       (unsigned long long)hash);
	if (x.how->replay)
		describe(p, meta, choice, n);
	fflush(stdout);
}

static void explore_recovery(const struct point *outer, uint32_t meta, const int *choice, uint32_t n);

static void evaluate(const struct point *p, uint32_t meta, const int *choice, uint32_t n)
{
	uint64_t hash = p->key ^ p->s->hash ^ p->s->t->meta_hash[meta] * 3;
	const char *bad;

	for (uint32_t i = 0; i < n; i++)
		hash ^= p->s->vs[i].hash[choice[i]];
	hash = hash_bytes(hash, "", 0);
	if (x.violations >= x.how->stop_at)
		return;
	if (!see(hash)) {
		__atomic_add_fetch(&tally->seen_again, 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_add_fetch(&tally->states, 1, __ATOMIC_RELAXED);
	if (p->depth)
		__atomic_add_fetch(&tally->in_recovery, 1, __ATOMIC_RELAXED);
	if (!x.how->replay || x.how->replay == hash) {
		apply(p->s, choice, n, false);
		mount(p, meta);
		bad = recover_and_check(x.r, p->kind, p->done, p->in_flight);
		restore(p->s);
		if (!bad && p->depth && p->s->pos == p->s->t->n) {
			apply(p->s, choice, n, false);
			mount(p, meta);
			bad = recover_settled();
			restore(p->s);
		}
		apply(p->s, choice, n, true);
		if (bad)
			violation(p, meta, choice, n, hash, bad);
		else if (x.how->replay)
			printf("state %016llx is recovered as it should be\n", (unsigned long long)hash);
	}
	if (p->depth == 0 && x.how->deep && ++x.since_deep >= x.how->deep) {
		x.since_deep = 0;
		explore_recovery(p, meta, choice, n);
	}
}

/* ---- combinations */

static void everything_few(const struct point *p, uint32_t meta, uint32_t n)
{
	int choice[64] = {0};

	for (;;) {
		uint32_t i = 0;

		evaluate(p, meta, choice, n);
		while (i < n && ++choice[i] == p->s->vs[i].n)
			choice[i++] = 0;
		if (i == n)
			return;
	}
}

static void all_or_none(const struct versions *vs, int *choice, uint32_t n, bool all)
{
	for (uint32_t i = 0; i < n; i++)
		choice[i] = all ? vs[i].n - 1 : 0;
}

/* The k-th line to look at: those stored to last come first, then any. */
static uint32_t pick(uint32_t k, uint32_t n)
{
	return k < 4 && k < n ? n - 1 - k : (uint32_t)test_below(&x.rnd, n);
}

static void some_of_many(const struct point *p, uint32_t meta, uint32_t n)
{
	const struct versions *vs = p->s->vs;
	const uint32_t part = x.how->most / 8 + 1;
	static int choice[PICKS];

	for (int all = 0; all < 2; all++) {
		all_or_none(vs, choice, n, all);
		evaluate(p, meta, choice, n);
	}
	for (uint32_t k = 0; k < 2 * part; k++) { /* all but one, or but for a part of it */
		const uint32_t i = pick(k, n);

		all_or_none(vs, choice, n, true);
		choice[i] = (int)test_below(&x.rnd, (uint64_t)vs[i].n);
		evaluate(p, meta, choice, n);
	}
	for (uint32_t k = 0; k < 2 * part; k++) { /* one alone, or a part of it */
		const uint32_t i = pick(k, n);

		all_or_none(vs, choice, n, false);
		choice[i] = vs[i].n - 1 - (int)test_below(&x.rnd, (uint64_t)(vs[i].n > 1 ? vs[i].n - 1 : 1));
		evaluate(p, meta, choice, n);
	}
	for (uint32_t k = 1; k <= part; k++) { /* in the order of the stores, up to one */
		all_or_none(vs, choice, n, false);
		all_or_none(vs, choice, (uint32_t)((uint64_t)n * k / (part + 1)), true);
		evaluate(p, meta, choice, n);
	}
	for (uint32_t k = 0; k < part; k++) { /* all but two */
		all_or_none(vs, choice, n, true);
		choice[pick(k, n)] = 0;
		choice[test_below(&x.rnd, n)] = 0;
		evaluate(p, meta, choice, n);
	}
	for (uint32_t k = 0; k < 2 * part; k++) { /* by chance */
		for (uint32_t i = 0; i < n; i++)
			choice[i] = (int)test_below(&x.rnd, (uint64_t)vs[i].n);
		evaluate(p, meta, choice, n);
	}
}

static void with_meta(const struct point *p, uint32_t meta)
{
	const uint32_t committed = sim_committed(p->s, meta);
	struct versions *vs = sim_room(p->s);
	uint64_t product = 1;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->s->nlines && n < PICKS; i++) {
		sim_versions(p->s, &p->s->lines[i], committed, p->s->nlines > COARSE, &vs[n]);
		/* One version: it is certain. (Not as it was: with these metadata operations the kernel's stores are there.) */
		if (vs[n].n < 2 && vs[n].hash[0] == 0)
			continue;
		product = product > 1u << 20 ? product : product * (uint64_t)vs[n].n;
		n++;
	}
	if (product <= x.how->exhaustive && n < 64)
		everything_few(p, meta, n);
	else
		some_of_many(p, meta, n);
}

static void at_point(const struct point *p)
{
	const struct sim *s = p->s;
	const uint32_t many = 8;

	for (uint32_t k = s->meta_lo; k <= s->meta_hi && x.violations < x.how->stop_at; k++)
		if (s->meta_hi - s->meta_lo < many || k < s->meta_lo + 2 || k + 3 > s->meta_hi ||
		    test_below(&x.rnd, s->meta_hi - s->meta_lo) < many / 2)
			with_meta(p, k);
}

/* ---- points */

/* Is what comes next something that ends the uncertainty before it, or changes what is expected? */
static bool before(const struct event *e)
{
	return e->kind == EV_FENCE || e->kind == EV_SYNC || e->kind == EV_COMMIT || e->kind == EV_META || e->kind == EV_BEGIN ||
	       e->kind == EV_END;
}

static uint64_t expectation(const struct point *p)
{
	const uint64_t key[3] = {x.r->prefix[p->done], p->in_flight ? x.r->prefix[p->done + 1] : 0,
				 (uint64_t)p->kind << 8 | p->boot};

	return hash_bytes(9, key, sizeof(key));
}

/* By chance, where a run has too many points to look at each. */
static bool looked_at(void)
{
	return x.how->points < 2 || test_below(&x.rnd, x.how->points) == 0;
}

/* Power is lost at each point of the run, from call `first` on. */
static void lose_power(void)
{
	const struct trace *t = &x.r->t;
	struct point p = {.s = &x.sim[0], .kind = CRASH_POWER, .boot = 2};

	sim_begin(p.s, t, x.r->base, x.r->base_blocks, x.r->base_hash);
	for (uint32_t i = 0; i <= t->n; i++) {
		if ((i == t->n || before(&t->ev[i])) && p.done + p.in_flight > x.r->first && looked_at()) {
			p.key = expectation(&p);
			at_point(&p);
		}
		if (i == t->n)
			break;
		p.in_flight = t->ev[i].kind == EV_BEGIN ? true : t->ev[i].kind == EV_END ? false : p.in_flight;
		p.done += t->ev[i].kind == EV_END;
		sim_step(p.s, false);
	}
}

/* The process dies at each event; stores that were under way are there up to some word. */
static void kill_process(void)
{
	const struct trace *t = &x.r->t;
	struct point p = {.s = &x.sim[0], .kind = CRASH_KILL, .boot = 1};
	static int choice[PICKS];
	struct versions *vs;

	sim_begin(p.s, t, x.r->base, x.r->base_blocks, x.r->base_hash);
	for (uint32_t i = 0; i < t->n; i++) {
		const struct event *e = &t->ev[i];
		const bool wanted = p.done + p.in_flight > x.r->first && looked_at();
		uint32_t n = 0, committed;

		p.in_flight = e->kind == EV_BEGIN ? true : e->kind == EV_END ? false : p.in_flight;
		p.done += e->kind == EV_END;
		p.key = expectation(&p);
		/* write(2) is not cut by a signal, not within a block. */
		if (e->kind == EV_STORE || e->kind == EV_NT) {
			sim_step(p.s, false);
			vs = sim_room(p.s);
			committed = sim_committed(p.s, p.s->meta_lo);
			for (uint32_t k = 0; wanted && k < p.s->nlines; k++) {
				sim_versions(p.s, &p.s->lines[k], committed, k % (p.s->nlines / 16 + 1) != 0, &vs[n]);
				choice[n] = 0;
				n += vs[n].n > 1;
			}
			/* Line after line, each up to one of its words. */
			for (uint32_t k = 0, left = x.how->most; k < n; k++) {
				for (int v = 1; v < vs[k].n && k % (n / 16 + 1) == 0 && left > 0; v++, left--) {
					choice[k] = v;
					evaluate(&p, p.s->meta_hi, choice, n);
				}
				choice[k] = vs[k].n - 1;
			}
			sim_settle_all(p.s);
		} else {
			sim_step(p.s, true);
			if (wanted && (e->kind == EV_META || (e->kind == EV_KERNEL && !e->index) || e->kind == EV_BEGIN ||
				       e->kind == EV_END))
				evaluate(&p, p.s->meta_hi, choice, 0);
		}
	}
}

/* The recovery of a state, recorded, and crashed again: by a power loss, and by being killed. */
static void explore_recovery(const struct point *outer, uint32_t meta, const int *choice, uint32_t n)
{
	const uint32_t used = outer->s->used;
	struct point p = *outer;
	uint64_t hash = outer->s->hash;
	static uint8_t *image;

	apply(outer->s, choice, n, false);
	for (uint32_t i = 0; i < n; i++)
		hash ^= outer->s->vs[i].hash[choice[i]];
	if (!image)
		image = mmap(NULL, (size_t)KERN_BLOCKS * KERN_BLOCK, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(image != MAP_FAILED);
	memcpy(image, outer->s->work, (size_t)used * KERN_BLOCK);
	mount(outer, meta);
	record_start(&x.recovery);
	recover_now();
	record_stop();
	restore(outer->s);
	apply(outer->s, choice, n, true);

	p.s = &x.sim[1];
	p.depth = 1;
	p.key ^= 0x5bd1e995;
	for (int kind = 0; kind < 2 && x.violations < x.how->stop_at; kind++) {
		const struct trace *t = &x.recovery;

		sim_begin(p.s, t, image, used, hash);
		for (uint32_t i = 0; i <= t->n; i++) {
			if (kind == 0 && (i == t->n || before(&t->ev[i]))) {
				p.boot = 2;
				p.kind = outer->kind;
				/* A power loss after a process death: only what had been durable is certain. */
				if (outer->kind == CRASH_POWER)
					at_point(&p);
			} else if (kind == 1) {
				p.boot = outer->boot;
				evaluate(&p, p.s->meta_hi, NULL, 0);
			}
			if (i < t->n)
				sim_step(p.s, kind == 1);
		}
	}
}

void explore_init(struct tally *t)
{
	tally = t;
	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	sim_init(&x.sim[0]);
	sim_init(&x.sim[1]);
}

void explore_forget(void)
{
	memset(tally->seen, 0, tally->room * sizeof(tally->seen[0]));
}

uint64_t explore_run(struct run *r, const struct explore_how *how)
{
	x.r = r;
	x.how = how;
	x.violations = 0;
	x.since_deep = 0;
	x.rnd = hash_bytes(how->seed, r->workload, strlen(r->workload)) | 1;
	/* What a page cache leaves is the kernel's alone: after a power loss there is nothing of ours to check on an emulated volume. */
	if (r->dax)
		lose_power();
	if (x.violations < how->stop_at)
		kill_process();
	return x.violations;
}
