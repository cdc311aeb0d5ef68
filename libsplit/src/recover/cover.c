/* SPDX-License-Identifier: Apache-2.0 */
#include "recover/cover.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct sfs_cover_node {
	uint64_t from, to;
	uint64_t priority;
	struct sfs_cover_node *left, *right;
};

/* The last range that begins at or before `at`. */
static struct sfs_cover_node *floor_of(const struct sfs_cover *c, uint64_t at)
{
	struct sfs_cover_node *n = c->root, *best = NULL;

	while (n) {
		if (n->from <= at) {
			best = n;
			n = n->right;
		} else {
			n = n->left;
		}
	}
	return best;
}

/* The first range that begins after `at`. */
static struct sfs_cover_node *after(const struct sfs_cover *c, uint64_t at)
{
	struct sfs_cover_node *n = c->root, *best = NULL;

	while (n) {
		if (n->from > at) {
			best = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

int sfs_cover_gaps(const struct sfs_cover *c, uint64_t from, uint64_t to, int (*gap)(void *ctx, uint64_t from, uint64_t to),
		   void *ctx)
{
	const struct sfs_cover_node *n = floor_of(c, from);

	if (n && n->to > from)
		from = n->to;
	while (from < to) {
		uint64_t end;
		int r;

		n = after(c, from);
		end = n && n->from < to ? n->from : to;
		r = gap(ctx, from, end);
		if (r)
			return r;
		from = n ? n->to : to;
	}
	return 0;
}

static void split(struct sfs_cover_node *n, uint64_t at, struct sfs_cover_node **left, struct sfs_cover_node **right)
{
	while (n) {
		if (n->from < at) {
			*left = n;
			left = &n->right;
			n = n->right;
		} else {
			*right = n;
			right = &n->left;
			n = n->left;
		}
	}
	*left = *right = NULL;
}

static void insert(struct sfs_cover_node **at, struct sfs_cover_node *new)
{
	while (*at && (*at)->priority >= new->priority)
		at = new->from < (*at)->from ? &(*at)->left : &(*at)->right;
	split(*at, new->from, &new->left, &new->right);
	*at = new;
}

static void take(struct sfs_cover_node **at, const struct sfs_cover_node *n)
{
	struct sfs_cover_node *l, *r;

	while (*at != n)
		at = n->from < (*at)->from ? &(*at)->left : &(*at)->right;
	l = n->left;
	r = n->right;
	while (l && r) {
		if (l->priority >= r->priority) {
			*at = l;
			at = &l->right;
			l = l->right;
		} else {
			*at = r;
			at = &r->left;
			r = r->left;
		}
	}
	*at = l ? l : r;
}

int sfs_cover_add(struct sfs_cover *c, uint64_t from, uint64_t to)
{
	struct sfs_cover_node *n, *m;

	if (from >= to)
		return 0;
	n = floor_of(c, from);
	if (n && n->to >= from) {
		if (n->to >= to)
			return 0;
		n->to = to; /* its beginning stays, so does its place */
	} else {
		m = after(c, from);
		if (m && m->from <= to) {
			/* The commonest case, newest first: a range that ends where the last one begins. Order is unchanged. */
			m->from = from;
			if (m->to >= to)
				return 0;
			m->to = to;
			n = m;
		} else {
			n = malloc(sizeof(*n));
			if (!n)
				return -ENOMEM;
			c->random = c->random * 6364136223846793005ull + 1442695040888963407ull;
			*n = (struct sfs_cover_node){.from = from, .to = to, .priority = c->random >> 16};
			insert(&c->root, n);
		}
	}
	while ((m = after(c, n->from)) && m->from <= n->to) {
		if (m->to > n->to)
			n->to = m->to;
		take(&c->root, m);
		free(m);
	}
	return 0;
}

void sfs_cover_free(struct sfs_cover *c)
{
	struct sfs_cover_node *n = c->root;

	/* Rotate left children up until there is none: no recursion, whatever the depth. */
	while (n) {
		struct sfs_cover_node *l = n->left;

		if (l) {
			n->left = l->right;
			l->right = n;
			n = l;
		} else {
			struct sfs_cover_node *r = n->right;

			free(n);
			n = r;
		}
	}
	c->root = NULL;
}
