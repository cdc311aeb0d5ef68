/* SPDX-License-Identifier: Apache-2.0 */
/* Inodes that clients have open, found by number and generation, and what each client holds of them. */
#include <errno.h>

#include "agent/internal.h"
#include "base/hash.h"

static struct dnode **bucket(const struct agent *a, uint64_t ino)
{
	return &a->table[(ino * SFS_HASH_FACTOR >> 20) & (a->table_size - 1)];
}

static struct dnode **slot(const struct agent *a, uint64_t ino, uint32_t gen)
{
	struct dnode **p = bucket(a, ino);

	while (*p && ((*p)->ino != ino || (*p)->gen != gen))
		p = &(*p)->next;
	return p;
}

static int table_grow(struct agent *a)
{
	const uint32_t old_size = a->table_size, size = old_size ? old_size * 2 : 1024;
	struct dnode **old = a->table, **table = calloc(size, sizeof(*table));

	if (!table)
		return old ? 0 : -ENOMEM; /* longer chains do no harm */
	a->table = table;
	a->table_size = size;
	for (uint32_t i = 0; i < old_size; i++) {
		struct dnode *next;

		for (struct dnode *d = old[i]; d; d = next) {
			struct dnode **p = slot(a, d->ino, d->gen);

			next = d->next;
			d->next = NULL;
			*p = d;
		}
	}
	free(old);
	return 0;
}

struct dnode *dnode_get(struct agent *a, uint64_t ino, uint32_t gen)
{
	struct dnode **p, *d;

	if (a->ndnodes >= a->table_size && table_grow(a))
		return NULL;
	p = slot(a, ino, gen);
	if (*p)
		return *p;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->ino = ino;
	d->gen = gen;
	d->way.fd = -1;
	TAILQ_INIT(&d->queue);
	*p = d;
	a->ndnodes++;
	if (owners_said(a, ino))
		openers_before(a, d);
	return d;
}

struct dnode *deleg_first(const struct agent *a, uint64_t ino)
{
	struct dnode *d = a->table_size ? *bucket(a, ino) : NULL;

	while (d && d->ino != ino)
		d = d->next;
	return d;
}

struct dnode *deleg_next(const struct dnode *d)
{
	struct dnode *next = d->next;

	while (next && next->ino != d->ino)
		next = next->next;
	return next;
}

struct dnode *deleg_find(const struct agent *a, uint64_t ino, uint32_t gen)
{
	return a->table_size ? *slot(a, ino, gen) : NULL;
}

void dnode_put(struct agent *a, struct dnode *d)
{
	struct dnode **p;

	if (d->holds || !TAILQ_EMPTY(&d->queue) || d->opening || openers_watched(d))
		return;
	outsider_unmark(a, d);
	p = slot(a, d->ino, d->gen);
	*p = d->next;
	free(d);
	a->ndnodes--;
}

struct hold *hold_find(const struct dnode *d, const struct client *c)
{
	struct hold *h = d->holds;

	while (h && h->client != c)
		h = h->dnode_next;
	return h;
}

static struct hold *hold_new(struct agent *a, struct client *c, struct dnode *d)
{
	struct hold *h;

	if (!tenant_may(c->tenant->holds, a->nholds, HOLDS_MAX, 1))
		return NULL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->client = c;
	h->dnode = d;
	h->lease_index = -1;
	h->target = (struct target){d->ino, d->gen, -1, NULL};
	h->dnode_next = d->holds;
	d->holds = h;
	h->client_next = c->holds;
	if (c->holds)
		c->holds->client_prev = h;
	c->holds = h;
	c->nholds++;
	c->tenant->holds++;
	a->nholds++;
	return h;
}

struct hold *hold_get(struct agent *a, struct client *c, uint64_t ino, uint32_t gen)
{
	struct dnode *d = dnode_get(a, ino, gen);
	struct hold *h = d ? hold_find(d, c) : NULL;

	if (d && !h)
		h = hold_new(a, c, d);
	if (d && !h)
		dnode_put(a, d);
	return h;
}

void hold_free(struct agent *a, struct hold *h)
{
	struct hold **p = &h->dnode->holds;
	struct client *c = h->client;

	owners_count(a, h, NOT_COUNTED);
	deleg_leave_queue(a, h);
	while (*p != h)
		p = &(*p)->dnode_next;
	*p = h->dnode_next;
	if (h->client_prev)
		h->client_prev->client_next = h->client_next;
	else
		c->holds = h->client_next;
	if (h->client_next)
		h->client_next->client_prev = h->client_prev;
	c->nholds--;
	c->tenant->holds--;
	a->nholds--;
	target_close(&h->target);
	free(h);
}

struct target *deleg_take_targets(struct client *c, size_t *n)
{
	struct target *list = c->nholds ? calloc(c->nholds, sizeof(*list)) : NULL;

	*n = 0;
	for (struct hold *h = c->holds; h && list; h = h->client_next) {
		if (h->target.fd < 0 && !h->target.handle)
			continue;
		list[(*n)++] = h->target;
		h->target.fd = -1;
		h->target.handle = NULL;
	}
	return list;
}

void deleg_free_targets(struct target *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		target_close(&list[i]);
	free(list);
}

void deleg_free_all(struct agent *a)
{
	/* What is left has no holds: programs without the library have it open. */
	for (uint32_t i = 0; i < a->table_size; i++) {
		while (a->table[i]) {
			struct dnode *d = a->table[i];

			a->table[i] = d->next;
			outsider_unmark(a, d);
			free(d);
		}
	}
	free(a->table);
}
