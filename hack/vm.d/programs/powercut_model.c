/* SPDX-License-Identifier: Apache-2.0 */
/* The model: which operation comes next, and what the files hold after it. */
#include "powercut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_FILE (256ul << 10)
#define LARGE_FILE (8ul << 20)

static void *grow(void *p, size_t n)
{
	p = realloc(p, n ? n : 1);
	if (!p) {
		fprintf(stderr, "powercut: out of memory\n");
		exit(1);
	}
	return p;
}

#define PUSH(array, n, room, value)                                                                                            \
	do {                                                                                                                   \
		if ((n) == (room)) {                                                                                           \
			(room) = (room) ? 2 * (room) : 16;                                                                     \
			(array) = grow((array), (room) * sizeof(*(array)));                                                    \
		}                                                                                                              \
		(array)[(n)++] = (value);                                                                                      \
	} while (0)

static uint64_t below(struct model *m, uint64_t n)
{
	uint64_t *s = &m->random;

	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return ((*s * 0x2545f4914f6cdd1dull) >> 20) % n;
}

uint8_t model_byte(uint64_t seed, uint64_t op, uint64_t off)
{
	uint64_t x = (seed + op * 0x9e3779b97f4a7c15ull) ^ (off * 0xc2b2ae3d27d4eb4full);

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return (uint8_t)(x >> 56);
}

const char *model_kind(enum kind kind)
{
	static const char *const names[] = {"create",	"append", "appendv", "overwrite", "cross", "beyond",
					    "truncate", "fsync",  "rename",  "unlink",	  "reopen"};

	return names[kind];
}

void model_init(struct model *m, uint64_t seed, bool track)
{
	memset(m, 0, sizeof(*m));
	m->seed = seed;
	m->random = seed * 0x9e3779b97f4a7c15ull | 1;
	m->track = track;
	for (int i = 0; i < 8; i++)
		below(m, 2);
}

static void object_free(struct object *o)
{
	free(o->data);
	free(o->synced);
	free(o->changes);
	free(o);
}

void model_free(struct model *m)
{
	for (size_t i = 0; i < m->nobjects; i++)
		object_free(m->objects[i]);
	free(m->objects);
	free(m->names);
}

/* Mostly small, sometimes a few blocks, rarely many. */
static size_t length(struct model *m, bool large)
{
	uint64_t r = below(m, 10);

	if (large && r < 3)
		return 1 + below(m, 1 << 20);
	if (r < 5)
		return 1 + below(m, 600);
	if (r < 9)
		return 1 + below(m, 9000);
	return 4096 * (1 + below(m, 8));
}

struct op model_next(struct model *m)
{
	struct op op = {.slot = (int)below(m, SLOTS)};
	const struct object *o = m->slot[op.slot];
	bool large = op.slot == SLOTS - 1;
	uint64_t limit = large ? LARGE_FILE : SMALL_FILE, r = below(m, 100);

	if (!o) {
		op.kind = CREATE;
		return op;
	}
	op.len = length(m, large);
	if (r < 34) {
		op.kind = APPEND;
		op.sequential = below(m, 2);
	} else if (r < 40) {
		op.kind = APPENDV;
	} else if (r < 60) {
		op.kind = OVERWRITE;
	} else if (r < 65) {
		op.kind = CROSS;
	} else if (r < 67) {
		op.kind = BEYOND;
	} else if (r < 71) {
		op.kind = TRUNCATE;
	} else if (r < 87) {
		op.kind = SYNC;
		op.data_only = below(m, 3) == 0;
	} else if (r < 91) {
		op.kind = RENAME;
		op.to = (int)((op.slot + 1 + (int)below(m, SLOTS - 2)) % (SLOTS - 1));
		if (large || op.to == op.slot)
			op.kind = SYNC;
	} else if (r < 94) {
		op.kind = UNLINK;
	} else {
		op.kind = REOPEN;
	}
	if ((op.kind == OVERWRITE || op.kind == CROSS) && o->size < 2)
		op.kind = APPEND;
	if (op.kind != SYNC && op.kind != UNLINK && o->size + 2 * op.len > limit)
		op.kind = TRUNCATE;
	switch (op.kind) {
	case APPENDV:
		op.split = below(m, op.len + 1);
		/* fallthrough */
	case APPEND:
		op.off = o->size;
		break;
	case OVERWRITE:
		if (op.len > o->size)
			op.len = o->size;
		op.off = below(m, o->size - op.len + 1);
		break;
	case CROSS:
		op.off = o->size - 1 - below(m, op.len < o->size ? op.len : o->size - 1);
		if (op.off + op.len <= o->size)
			op.len = o->size - op.off + 1 + below(m, 5000);
		break;
	case BEYOND:
		op.off = o->size + 1 + below(m, 20000);
		break;
	case TRUNCATE:
		op.off = below(m, 4) ? below(m, o->size + 1) : below(m, limit / 2);
		break;
	default:
		break;
	}
	return op;
}

static void resize(struct object *o, uint64_t size)
{
	if (size > o->room) {
		o->room = size + size / 2;
		o->data = grow(o->data, o->room);
	}
	if (size > o->size)
		memset(o->data + o->size, 0, size - o->size);
	o->size = size;
}

static void name(struct model *m, int slot, struct object *o)
{
	m->slot[slot] = o;
	if (m->track)
		PUSH(m->names, m->nnames, m->names_room, ((struct renaming){m->ops, slot, o}));
}

/* Names of operations before `floor` can't be lost any more; objects that died before it can't come back. */
static void raise_floor(struct model *m, uint64_t floor)
{
	size_t kept = 0;

	if (floor <= m->floor)
		return;
	m->floor = floor;
	for (size_t i = 0; i < m->nnames; i++) {
		if (m->names[i].op < floor)
			m->base[m->names[i].slot] = m->names[i].object;
		else
			m->names[kept++] = m->names[i];
	}
	m->nnames = kept;
	kept = 0;
	for (size_t i = 0; i < m->nobjects; i++) {
		if (m->objects[i]->died < floor)
			object_free(m->objects[i]);
		else
			m->objects[kept++] = m->objects[i];
	}
	m->nobjects = kept;
}

static void changed(struct model *m, struct object *o, uint64_t off, uint64_t len, bool truncate)
{
	if (m->track)
		PUSH(o->changes, o->nchanges, o->changes_room, ((struct change){m->ops, off, len, o->size, truncate}));
}

static void die(struct model *m, struct object *o)
{
	o->died = m->ops;
	if (m->track)
		return;
	for (size_t i = 0; i < m->nobjects; i++)
		if (m->objects[i] == o)
			m->objects[i] = m->objects[--m->nobjects];
	object_free(o);
}

void model_apply(struct model *m, const struct op *op)
{
	struct object *o = m->slot[op->slot];

	switch (op->kind) {
	case CREATE:
		o = grow(NULL, sizeof(*o));
		*o = (struct object){.born = m->ops, .died = UINT64_MAX};
		PUSH(m->objects, m->nobjects, m->objects_room, o);
		name(m, op->slot, o);
		break;
	case APPEND:
	case APPENDV:
	case OVERWRITE:
	case CROSS:
	case BEYOND:
		if (op->off + op->len > o->size)
			resize(o, op->off + op->len);
		for (uint64_t i = op->off; i < op->off + op->len; i++)
			o->data[i] = model_byte(m->seed, m->ops, i);
		changed(m, o, op->off, op->len, false);
		break;
	case TRUNCATE:
		resize(o, op->off);
		changed(m, o, op->off, 0, true);
		break;
	case SYNC:
		if (!m->track)
			break;
		o->synced = grow(o->synced, o->size);
		memcpy(o->synced, o->data, o->size);
		o->synced_size = o->size;
		o->ever_synced = true;
		o->nchanges = 0;
		raise_floor(m, o->born + 1);
		break;
	case RENAME:
		if (m->slot[op->to])
			die(m, m->slot[op->to]);
		name(m, op->to, o);
		name(m, op->slot, NULL);
		break;
	case UNLINK:
		die(m, o);
		name(m, op->slot, NULL);
		break;
	case REOPEN:
		break;
	}
	m->ops++;
}
