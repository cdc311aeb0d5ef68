/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of persistence, x86:
 *   - cached stores to one line become durable in program order (they are cut into aligned words of 8 bytes, ascending, as
 *     pm.c stores them), lines independently of each other, at any time;
 *   - a line that was written back is durable, as it was then, after the next fence of the same processor;
 *   - non-temporal stores are durable after the next fence, before that word by word in any order;
 *   - what the kernel stores for write(2) is like a non-temporal store, and durable with the metadata operation it belongs to;
 *   - fsync makes durable the stores through mappings of that file, and the journal up to its last operation on that file.
 */
#include "crash/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"

#define BYTES ((size_t)KERN_BLOCKS * KERN_BLOCK)

static void *room(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

void sim_init(struct sim *s)
{
	memset(s, 0, sizeof(*s));
	s->durable = room(BYTES);
	s->work = room(BYTES);
	s->index = room(BYTES / LINE * sizeof(*s->index));
	memset(s->index, 0xff, BYTES / LINE * sizeof(*s->index));
}

uint64_t sim_line_hash(uint32_t line, const uint8_t *bytes)
{
	return hash_bytes(line + 1, bytes, LINE);
}

void sim_begin(struct sim *s, const struct trace *t, const uint8_t *base, uint32_t used, uint64_t hash)
{
	const uint32_t most = used > s->used ? used : s->used;

	for (uint32_t i = 0; i < s->nlines; i++)
		s->index[s->lines[i].line] = -1;
	s->nlines = 0;
	memcpy(s->durable, base, (size_t)used * KERN_BLOCK);
	memset(s->durable + (size_t)used * KERN_BLOCK, 0, (size_t)(most - used) * KERN_BLOCK);
	memcpy(s->work, s->durable, (size_t)most * KERN_BLOCK);
	s->used = t->end_block > used ? t->end_block : used;
	s->t = t;
	s->pos = 0;
	s->meta_lo = s->meta_hi = 0;
	s->hash = hash;
}

struct versions *sim_room(struct sim *s)
{
	if (s->vs_room < s->nlines) {
		s->vs_room = s->nlines + 256;
		s->vs = reallocarray(s->vs, s->vs_room, sizeof(*s->vs));
		CHECK(s->vs);
	}
	return s->vs;
}

static struct pline *pending(struct sim *s, uint32_t line)
{
	struct pline *l;

	if (s->index[line] >= 0)
		return &s->lines[s->index[line]];
	if (s->nlines == s->room) {
		const uint32_t more = s->room ? s->room * 2 : 256;

		s->lines = reallocarray(s->lines, more, sizeof(*s->lines));
		CHECK(s->lines);
		memset(s->lines + s->room, 0, (more - s->room) * sizeof(*s->lines));
		s->room = more;
	}
	s->index[line] = (int32_t)s->nlines;
	l = &s->lines[s->nlines++];
	l->line = line;
	l->n = 0;
	memset(l->flushed, 0, sizeof(l->flushed));
	return l;
}

static void put(uint8_t *line, const struct pword *w)
{
	for (unsigned i = 0; i < 8; i++)
		if (w->mask & 1u << i)
			line[w->word * 8u + i] = (uint8_t)(w->value >> 8 * i);
}

/* The words that `which` chooses are durable from now on; a word that stands before a chosen one in its line is too. */
static void settle(struct sim *s, bool (*which)(const struct sim *s, const struct pline *l, uint32_t i, uint64_t arg),
		   uint64_t arg)
{
	for (uint32_t k = 0; k < s->nlines;) {
		struct pline *l = &s->lines[k];
		uint8_t *at = s->durable + (size_t)l->line * LINE;
		uint32_t n = 0;

		for (uint32_t i = 0; i < l->n; i++)
			if (which(s, l, i, arg))
				n = i + 1;
		if (!n) {
			k++;
			continue;
		}
		s->hash ^= sim_line_hash(l->line, at);
		for (uint32_t i = 0; i < n; i++)
			put(at, &l->w[i]);
		s->hash ^= sim_line_hash(l->line, at);
		memcpy(s->work + (size_t)l->line * LINE, at, LINE);
		memmove(l->w, l->w + n, (l->n - n) * sizeof(*l->w));
		l->n -= n;
		for (unsigned c = 0; c < CPUS; c++)
			l->flushed[c] = l->flushed[c] > n ? l->flushed[c] - n : 0;
		if (l->n > 0) {
			k++;
			continue;
		}
		/* The last line takes its place; its array of words stays with the slot. */
		s->index[l->line] = -1;
		s->nlines--;
		if (k < s->nlines) {
			struct pline empty = *l;

			*l = s->lines[s->nlines];
			s->lines[s->nlines] = empty;
			s->index[l->line] = (int32_t)k;
		}
	}
}

static bool by_fence(const struct sim *s, const struct pline *l, uint32_t i, uint64_t cpu)
{
	(void)s;
	return l->w[i].kind == EV_STORE ? i < l->flushed[cpu] : l->w[i].cpu == cpu;
}

/* Content stored by the kernel before event `arg`. */
static bool by_journal(const struct sim *s, const struct pline *l, uint32_t i, uint64_t arg)
{
	(void)s;
	return l->w[i].kind == EV_KERNEL && l->w[i].event < arg;
}

static bool by_fsync(const struct sim *s, const struct pline *l, uint32_t i, uint64_t ino)
{
	(void)s;
	return ino == 0 || l->w[i].ino == ino;
}

/* The event of metadata operation k of the trace. */
uint32_t sim_committed(const struct sim *s, uint32_t meta)
{
	uint32_t i = s->pos;

	while (i > 0 && !(s->t->ev[i - 1].kind == EV_META && s->t->ev[i - 1].index == meta))
		i--;
	return i > 0 ? i - 1 : 0;
}

/* `data`: and what was stored through mappings of the file. */
static void synced(struct sim *s, uint32_t ino, bool data)
{
	uint32_t upto = s->meta_lo;

	for (uint32_t i = s->pos; i > 0; i--) {
		const struct event *e = &s->t->ev[i - 1];

		if (e->kind == EV_META && (ino == 0 || (e->touched & 1ull << ino))) {
			upto = e->index > upto ? e->index : upto;
			break;
		}
	}
	s->meta_lo = upto;
	settle(s, by_journal, sim_committed(s, upto));
	if (data)
		settle(s, by_fsync, ino);
}

static void store(struct sim *s, const struct event *e)
{
	const uint8_t *src = s->t->bytes + e->data;
	uint32_t at = e->at;
	const uint32_t end = e->at + e->len;

	while (at < end) {
		struct pline *l = pending(s, at / LINE);
		struct pword w = {
			.event = s->pos, .kind = e->kind, .ino = e->ino, .cpu = e->cpu, .word = (uint8_t)(at / 8 % 8)};

		for (; at < end; at++) {
			w.value |= (uint64_t)*src++ << 8 * (at % 8);
			w.mask |= (uint8_t)(1u << at % 8);
			if (at % 8 == 7) {
				at++;
				break;
			}
		}
		if (l->n == l->room) {
			l->room = l->room ? l->room * 2 : 8;
			l->w = reallocarray(l->w, l->room, sizeof(*l->w));
			CHECK(l->w);
		}
		l->w[l->n++] = w;
	}
}

static bool always(const struct sim *s, const struct pline *l, uint32_t i, uint64_t arg)
{
	(void)s;
	(void)l;
	(void)i;
	(void)arg;
	return true;
}

void sim_settle_all(struct sim *s)
{
	settle(s, always, 0);
}

void sim_step(struct sim *s, bool all_durable)
{
	const struct event *e = &s->t->ev[s->pos];

	switch (e->kind) {
	case EV_STORE:
	case EV_NT:
	case EV_KERNEL:
		store(s, e);
		if (all_durable)
			settle(s, always, 0);
		break;
	case EV_FLUSH:
		for (uint32_t line = e->at / LINE; line <= (e->at + e->len - 1) / LINE; line++)
			if (s->index[line] >= 0)
				s->lines[s->index[line]].flushed[e->cpu] = s->lines[s->index[line]].n;
		break;
	case EV_FENCE:
		settle(s, by_fence, e->cpu);
		break;
	case EV_META:
		s->meta_hi = e->index;
		if (all_durable)
			s->meta_lo = e->index;
		break;
	case EV_SYNC:
	case EV_COMMIT:
		synced(s, e->ino, e->kind == EV_SYNC);
		break;
	default:
		break;
	}
	s->pos++;
}

static void add_version(const struct sim *s, struct versions *v, const uint8_t *bytes)
{
	const uint8_t *at = s->durable + (size_t)v->line * LINE;

	for (int i = 0; i < v->n; i++)
		if (memcmp(v->bytes[i], bytes, LINE) == 0)
			return;
	if (v->n == VERSIONS_MAX)
		return;
	memcpy(v->bytes[v->n], bytes, LINE);
	v->hash[v->n] = sim_line_hash(v->line, at) ^ sim_line_hash(v->line, bytes);
	v->n++;
}

/* The line with the words that pass: below `upto`, except `without`, and in any case those that are certain. */
static void version(const struct sim *s, const struct pline *l, struct versions *v, uint32_t forced, uint32_t upto,
		    uint32_t without)
{
	uint8_t bytes[LINE];

	memcpy(bytes, s->durable + (size_t)l->line * LINE, LINE);
	for (uint32_t i = 0; i < l->n; i++)
		if ((i < upto && i != without) || (l->w[i].kind == EV_KERNEL && l->w[i].event < forced))
			put(bytes, &l->w[i]);
	add_version(s, v, bytes);
}

void sim_versions(const struct sim *s, const struct pline *l, uint32_t committed, bool few, struct versions *v)
{
	const uint32_t none = UINT32_MAX, some = l->n > 1 ? 1 + l->line % (l->n - 1) : 1;
	bool words = false;

	v->line = l->line;
	v->n = 0;
	version(s, l, v, committed, 0, none);
	for (uint32_t i = few ? some : 1; i < l->n; i++) {
		const bool border = l->w[i].event != l->w[i - 1].event;

		words |= l->w[i].kind != EV_STORE;
		/* Within a store only where there are few words, or it is the first or the last store. */
		if (few || border || l->n <= 16 || l->w[i].event == l->w[0].event || l->w[i].event == l->w[l->n - 1].event)
			if (v->n < VERSIONS_MAX - 1)
				version(s, l, v, committed, i, none);
		if (few)
			break;
	}
	for (uint32_t i = 0; words && !few && i < l->n && v->n < VERSIONS_MAX - 1; i++)
		if (l->w[i].kind != EV_STORE)
			version(s, l, v, committed, l->n, i);
	version(s, l, v, committed, l->n, none);
	/* "Everything" is always the last one. */
	if (v->n > 1) {
		uint8_t bytes[LINE], last[LINE];
		uint64_t h;
		int at = 0;

		memcpy(bytes, s->durable + (size_t)l->line * LINE, LINE);
		for (uint32_t i = 0; i < l->n; i++)
			put(bytes, &l->w[i]);
		while (at < v->n && memcmp(v->bytes[at], bytes, LINE) != 0)
			at++;
		if (at < v->n - 1 && at > 0) {
			memcpy(last, v->bytes[v->n - 1], LINE);
			h = v->hash[v->n - 1];
			memcpy(v->bytes[v->n - 1], v->bytes[at], LINE);
			v->hash[v->n - 1] = v->hash[at];
			memcpy(v->bytes[at], last, LINE);
			v->hash[at] = h;
		}
	}
}
