/* SPDX-License-Identifier: Apache-2.0 */
#include "top.h"

#include <errno.h>
#include <string.h>

uint64_t top_served(const struct sfs_counters *c)
{
	return c->read_ops + c->append_ops + c->overwrite_ops;
}

uint64_t top_calls(const struct sfs_counters *c)
{
	return top_served(c) + c->passthrough_ops;
}

uint64_t top_written(const struct sfs_counters *c)
{
	return c->append_bytes + c->overwrite_bytes;
}

uint64_t top_without_copy(const struct sfs_counters *c)
{
	return c->peek_ops + c->patch_ops + c->swap_ops;
}

/* Counters are plain stores of other processes: a sum that was read in between may be behind one before. Then nothing has happened. */
static struct sfs_counters since(const struct sfs_counters *now, const struct sfs_counters *then)
{
	struct sfs_counters d;

#define SUB(name) d.name = now->name > then->name ? now->name - then->name : 0;
	SFS_COUNTERS(SUB)
#undef SUB
	return d;
}

static void latency_since(struct sfs_latencies *to, const struct sfs_latencies *now, const struct sfs_latencies *then)
{
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++)
		for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
			if (now->bucket[kind][i] > then->bucket[kind][i])
				to->bucket[kind][i] += now->bucket[kind][i] - then->bucket[kind][i];
}

/* A log belongs to one process, and its number is used once while the agent runs; an agent after it may use it again. */
static const struct report_process *same(const struct report *rp, const struct report_process *p)
{
	for (size_t i = 0; i < rp->nprocesses; i++) {
		const struct sfs_lease *l = &rp->processes[i].lease;

		if (l->log_id == p->lease.log_id && l->pid == p->lease.pid && l->start == p->lease.start)
			return &rp->processes[i];
	}
	return NULL;
}

static int busiest(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;
	const uint64_t p = x->delta.read_bytes + top_written(&x->delta), q = y->delta.read_bytes + top_written(&y->delta);
	const uint64_t m = top_calls(&x->delta), n = top_calls(&y->delta);

	if (p != q)
		return p < q ? 1 : -1;
	if (m != n)
		return m < n ? 1 : -1;
	return x->process->lease.pid < y->process->lease.pid ? -1 : x->process->lease.pid > y->process->lease.pid;
}

int top_compare(struct top *t, const struct report *before, const struct report *after, uint64_t ms, struct sfs_why *why)
{
	struct sfs_counters living = {0};

	*t = (struct top){.before = before, .after = after, .ms = ms ? ms : 1};
	t->rows = calloc(after->nprocesses ? after->nprocesses : 1, sizeof(*t->rows));
	if (!t->rows)
		return sfs_fail(why, -ENOMEM, "out of memory");
	for (size_t i = 0; i < after->nprocesses; i++) {
		const struct report_process *p = &after->processes[i], *old = same(before, p);
		struct top_row *row = &t->rows[t->nrows];

		if (!p->alive)
			continue;
		row->process = p;
		row->delta = old ? since(&p->counters, &old->counters) : p->counters;
		sfs_counters_add(&living, &row->delta);
		t->nrows++;
	}
	t->total = since(&after->totals.counters, &before->totals.counters);
	for (unsigned mode = 0; mode < SFS_MODES; mode++)
		latency_since(&t->latency, &after->totals.latency[mode], &before->totals.latency[mode]);
	t->ended = since(&t->total, &living);
	qsort(t->rows, t->nrows, sizeof(*t->rows), busiest);
	return 0;
}

void top_free(struct top *t)
{
	free(t->rows);
	t->rows = NULL;
	t->nrows = 0;
}
