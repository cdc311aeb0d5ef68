/* SPDX-License-Identifier: Apache-2.0 */
/* From what was counted and what calls cost: the mode that a program needs, and what the library would save. */
#include <stdio.h>

#include "advise.h"

#define MOSTLY 0.5 /* of its writes */

enum adv_view advise_view(const struct advice *a, enum world mode, bool pmem)
{
	const bool eager = mode == STRICT || (mode == SYNC && (pmem || a->place->dax));

	if (pmem)
		return eager ? ADV_EAGER_PMEM : ADV_LAZY_PMEM;
	return eager ? ADV_EAGER_HERE : ADV_LAZY_HERE;
}

static void add(struct adv_cell *to, const struct adv_cell *c)
{
	to->calls += c->calls;
	to->bytes += c->bytes;
	to->cpu += c->cpu;
	to->wall += c->wall;
}

struct adv_cell advise_served(const struct adv_seen *s, enum adv_op op)
{
	struct adv_cell sum = {0};

	for (int i = 0; i < ADV_SIZES; i++)
		add(&sum, &s->served[op][i]);
	return sum;
}

struct advise_sum advise_sum(const struct adv_seen *s)
{
	struct advise_sum sum = {0};

	for (enum adv_op op = 0; op < ADV_OPS; op++) {
		const struct adv_cell c = advise_served(s, op);

		add(&sum.served, &c);
		add(&sum.all, &c);
		for (int why = 0; why < ADV_REASONS; why++)
			add(&sum.all, &s->kernel[why][op]);
	}
	return sum;
}

/* ---- the mode ---- */

static uint64_t all_writes(const struct adv_seen *s)
{
	uint64_t n = advise_served(s, ADV_APPEND).calls + advise_served(s, ADV_OVERWRITE).calls;

	for (int why = 0; why < ADV_REASONS; why++)
		n += s->kernel[why][ADV_APPEND].calls + s->kernel[why][ADV_OVERWRITE].calls;
	return n;
}

static void conclude_mode(struct advice *a)
{
	const struct adv_report *r = a->counts;
	const double writes = (double)all_writes(&r->views[ADV_LAZY_HERE]);
	const double forced = (double)(r->fsyncs[ADV_GAP_1].calls + r->synced.calls);
	const uint64_t fsyncs = r->fsyncs[ADV_GAP_1].calls + r->fsyncs[ADV_GAP_FEW].calls + r->fsyncs[ADV_GAP_MANY].calls;

	a->mode = POSIX;
	if (writes == 0)
		snprintf(a->why, sizeof(a->why), "it writes nothing in the directory");
	else if (forced > MOSTLY * writes)
		a->mode = SYNC, snprintf(a->why, sizeof(a->why),
					 "it makes %.0f%% of its writes durable one by one (%llu with O_SYNC or its like, %llu "
					 "with an fsync behind)",
					 100 * (forced > writes ? 1 : forced / writes), (unsigned long long)r->synced.calls,
					 (unsigned long long)r->fsyncs[ADV_GAP_1].calls);
	else if (r->renames_unsynced)
		a->mode = SYNC,
		snprintf(a->why, sizeof(a->why),
			 "it renames %llu of %llu files into place without an fsync before: durable in this order with sync",
			 (unsigned long long)r->renames_unsynced, (unsigned long long)r->renames);
	else if (fsyncs)
		snprintf(a->why, sizeof(a->why), "it calls fsync itself, %llu times for %.0f writes",
			 (unsigned long long)fsyncs, writes);
	else
		snprintf(a->why, sizeof(a->why), "it forces nothing to be durable; with sync each write would be");
}

/* ---- the estimate ---- */

/* A call of so many bytes, from the sizes that were measured: a line between two of them, and the last one's rate beyond. */
static double cost(const double c[COST_SIZES], double bytes)
{
	int i = 1;

	while (i < COST_SIZES - 1 && bytes > cost_bytes[i])
		i++;
	if (bytes <= cost_bytes[0])
		return c[0];
	return c[i - 1] + (c[i] - c[i - 1]) * (bytes - cost_bytes[i - 1]) / (double)(cost_bytes[i] - cost_bytes[i - 1]);
}

static double no_less(double v)
{
	return v > 0 ? v : 0;
}

/* Calls of the kernel's before which the library looks whether somebody has the file. */
static uint64_t unheld(const struct adv_seen *s)
{
	static const enum adv_reason reasons[] = {ADV_FEW, ADV_LARGE, ADV_FORCED, ADV_LOCKED};
	uint64_t n = 0;

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		for (int op = 0; op < ADV_OPS; op++)
			n += s->kernel[reasons[i]][op].calls;
	return n;
}

static void conclude_estimate(struct advice *a, enum world mode)
{
	const struct costs *c = &a->table->world[mode], *k = &a->table->world[KERNEL];
	const struct adv_report *r = a->counts;
	const enum adv_view view = advise_view(a, mode, false);
	const struct adv_seen *s = &r->views[view];
	const bool eager = view == ADV_EAGER_HERE;
	struct estimate *e = &a->estimates[mode];
	double kernel = 0, ours = 0;

	for (enum adv_op op = 0; op < ADV_OPS; op++)
		for (int i = 0; i < ADV_SIZES; i++) {
			const struct adv_cell *cell = &s->served[op][i];

			if (cell->calls == 0)
				continue;
			kernel += (double)cell->cpu;
			ours += (double)cell->calls * cost(c->op[op], (double)cell->bytes / (double)cell->calls);
		}
	kernel += (double)s->fsync.cpu;
	ours += (double)s->fsync.calls * c->fsync + (double)s->fsync.bytes * c->fsync_byte;
	/* What was not forced is relinked when the file is closed; the kernel leaves it to its own threads. */
	ours += (double)s->close.bytes * no_less(c->fsync_byte - k->fsync_byte);
	ours += (double)s->grants * no_less((eager ? c->file : c->grant) - k->file) +
		(double)r->names * no_less(c->name - k->name) + (double)r->attributes * no_less(c->attribute - k->attribute) +
		(double)r->locks * no_less(c->lock - k->lock) + (double)r->users * no_less(c->start - k->start);
	if (!eager)
		ours += (double)unheld(s) * no_less(c->pass - k->pass);
	e->known = a->table->measured;
	e->calls = kernel / 1e9;
	e->saved = (kernel - ours) / 1e9;
}

void advise_conclude(struct advice *a)
{
	conclude_mode(a);
	for (enum world mode = POSIX; mode < WORLDS; mode++)
		conclude_estimate(a, mode);
}
