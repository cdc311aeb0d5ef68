/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that had a file open before a client was granted it, or have got a descriptor of it in a way that nobody tells of: the
 * kernel has not asked about them (outsider.c). A thread looks who has the file open soon after the grant, and who is found is
 * from then on one of those in openers.c: the client gives the file up. What such a program writes until then may be lost under what is staged.
 *
 * A look at all processes takes 0.1 ms for each. So it is for all files at once that have been granted since the last one, and comes
 * so rarely that it takes a fiftieth of a processor. Once it has been looked nobody else can come unseen while the kernel asks about opens.
 */
#include "agent/openers.h"
#include "base/state.h"

#define FIRST_MS 5  /* from a grant to the look, so that it is for the next files, too */
#define REST_MS	 20 /* after a look at least */
#define REST	 50 /* times the time of a processor that it took */

static void set(struct outsiders *o, struct dnode *d, enum before to)
{
	static const uint8_t next[] = {
		[BEFORE_UNKNOWN] = SFS_TO(BEFORE_WAITS),
		[BEFORE_WAITS] = SFS_TO(BEFORE_ASKED) | SFS_TO(BEFORE_UNKNOWN),
		[BEFORE_ASKED] = SFS_TO(BEFORE_KNOWN) | SFS_TO(BEFORE_WAITS) | SFS_TO(BEFORE_UNKNOWN),
		[BEFORE_KNOWN] = SFS_TO(BEFORE_UNKNOWN),
	};

	sfs_check_next(next, d->before, to);
	if (to == BEFORE_WAITS)
		TAILQ_INSERT_TAIL(&o->before.waiting, d, before_place);
	else if (d->before == BEFORE_WAITS)
		TAILQ_REMOVE(&o->before.waiting, d, before_place);
	d->before = to;
}

void before_granted(struct agent *a, struct dnode *d)
{
	struct before_looks *b = &a->outsiders.before;
	const uint64_t soon = agent_now() + FIRST_MS;

	if (!d->marked || d->before != BEFORE_UNKNOWN || b->looker.in < 0)
		return;
	if (TAILQ_EMPTY(&b->waiting) && b->next < soon)
		b->next = soon;
	set(&a->outsiders, d, BEFORE_WAITS);
}

void before_again(struct agent *a, struct dnode *d)
{
	before_forget(a, d);
	before_granted(a, d);
}

void before_forget(struct agent *a, struct dnode *d)
{
	if (d->before != BEFORE_UNKNOWN)
		set(&a->outsiders, d, BEFORE_UNKNOWN);
}

int before_wait_ms(const struct agent *a)
{
	const struct before_looks *b = &a->outsiders.before;

	return b->asked || TAILQ_EMPTY(&b->waiting) ? -1 : agent_until(b->next);
}

void before_timeouts(struct agent *a, uint64_t now)
{
	struct before_looks *b = &a->outsiders.before;
	struct look_for f = {.dev = a->root.dev};
	struct dnode *d;

	if (b->asked || now < b->next || TAILQ_EMPTY(&b->waiting))
		return;
	TAILQ_FOREACH(d, &b->waiting, before_place) {
		if (f.nfiles == (b->fewer ? b->fewer : LOOKER_FILES))
			break;
		f.file[f.nfiles++] = (struct look_file){d->ino, d->gen};
	}
	b->asked = looker_ask(&b->looker, &f);
	b->next = now + FIRST_MS;
	for (uint32_t i = 0; b->asked && i < f.nfiles; i++)
		set(&a->outsiders, TAILQ_FIRST(&b->waiting), BEFORE_ASKED);
}

/* One that has it since before. */
static void has(struct agent *a, struct dnode *d, const struct look_found *found)
{
	const struct outsider *known = *opener_find(d, found->pid);

	if (known && (known->writes || !found->writes))
		return;
	if (opener_found(a, d, found, true))
		outsider_step_down(a, d, found->writes);
}

/* More have them than an answer has room for: they are looked for again, with fewer others, until it is one file that so many have. */
static bool cut_off(struct before_looks *b, const struct look_answer *r)
{
	const bool cut = r->has == SFS_OPENED_UNKNOWN && r->nfiles > 1;

	b->fewer = cut ? r->nfiles / 2 : 0;
	return cut;
}

static void hear(struct agent *a, const struct look_answer *r)
{
	const enum before then = cut_off(&a->outsiders.before, r) ? BEFORE_WAITS : BEFORE_KNOWN;

	for (uint32_t i = 0; i < r->nfiles; i++) {
		struct dnode *d = deleg_find(a, r->file[i].ino, r->file[i].gen);

		/* It may have gone, and another one come, since it was asked about. */
		if (!d || d->before != BEFORE_ASKED)
			continue;
		set(&a->outsiders, d, then);
		for (uint32_t k = 0; k < r->nfound; k++)
			if (r->found[k].file == i)
				has(a, d, &r->found[k]);
		deleg_process(a, d);
	}
}

void before_hear(struct agent *a)
{
	struct before_looks *b = &a->outsiders.before;
	struct look_answer r;

	while (looker_hears(&b->looker, &r)) {
		b->asked = false;
		b->next = agent_now() + REST_MS + r.us * REST / 1000;
		hear(a, &r);
	}
}
