/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each mode promises after a power cut, as docs/data-path.md says it:
 *
 *   strict  the state after all acknowledged operations, or after the one in flight too; nothing between
 *   sync    the same, but the one in flight may have overwritten some of its bytes
 *   posix   what was fsynced; completed overwrites of it; names as the kernel's journal keeps them (some beginning of the changes);
 *           whatever was done since the last fsync is there or not, but only what was really written
 */
#include "powercut.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a directory holds. */
struct found {
	bool there[SLOTS];
	uint8_t *data[SLOTS];
	uint64_t size[SLOTS];
};

/* Why the last comparison said no. */
static char why[512];

__attribute__((format(printf, 1, 2))) static bool no(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, sizeof(why), format, ap);
	va_end(ap);
	return false;
}

static void read_file(const char *path, struct found *f, int slot)
{
	int fd = open(path, O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		fprintf(stderr, "powercut: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	f->there[slot] = true;
	f->size[slot] = (uint64_t)st.st_size;
	f->data[slot] = malloc(f->size[slot] + 1);
	for (uint64_t at = 0; at < f->size[slot];) {
		ssize_t n = pread(fd, f->data[slot] + at, f->size[slot] - at, (off_t)at);

		if (n <= 0) {
			fprintf(stderr, "powercut: reading %s at %" PRIu64 ": %s\n", path, at,
				n ? strerror(errno) : "end of file");
			exit(1);
		}
		at += (uint64_t)n;
	}
	close(fd);
}

/* False when there is something that no operation ever named. */
static bool read_dir(const char *dir, struct found *f)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	memset(f, 0, sizeof(*f));
	if (!d) {
		fprintf(stderr, "powercut: %s: %s\n", dir, strerror(errno));
		exit(1);
	}
	while ((e = readdir(d))) {
		char path[4096];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (e->d_name[0] != 'f' || e->d_name[1] < '0' || e->d_name[1] >= '0' + SLOTS || e->d_name[2]) {
			closedir(d);
			return no("%s/%s was never created", dir, e->d_name);
		}
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		read_file(path, f, e->d_name[1] - '0');
	}
	closedir(d);
	return true;
}

static void free_found(struct found *f)
{
	for (int i = 0; i < SLOTS; i++)
		free(f->data[i]);
}

/* Where and how a file differs from what it should hold. */
static bool differs(const struct found *f, int slot, const uint8_t *want, uint64_t at)
{
	uint64_t last = at, n = 0, zeros = 0;

	for (uint64_t i = at; i < f->size[slot]; i++) {
		if (f->data[slot][i] == want[i])
			continue;
		last = i;
		n++;
		zeros += f->data[slot][i] == 0;
	}
	return no("f%d differs in %" PRIu64 " bytes (%" PRIu64 " of them zero) from %" PRIu64 " to %" PRIu64 " of %" PRIu64,
		  slot, n, zeros, at, last, f->size[slot]);
}

static bool same_file(const struct found *f, int slot, const struct object *o)
{
	if (!o || !f->there[slot])
		return o || f->there[slot] ? no("f%d %s", slot, o ? "is missing" : "should not be there") : true;
	if (f->size[slot] != o->size)
		return no("f%d has %" PRIu64 " bytes instead of %" PRIu64, slot, f->size[slot], o->size);
	for (uint64_t i = 0; i < o->size; i++)
		if (f->data[slot][i] != o->data[i])
			return differs(f, slot, o->data, i);
	return true;
}

static bool same(const struct found *f, const struct model *m)
{
	for (int i = 0; i < SLOTS; i++)
		if (!same_file(f, i, m->slot[i]))
			return false;
	return true;
}

static void replay(struct model *m, uint64_t seed, uint64_t ops, bool track)
{
	model_init(m, seed, track);
	while (m->ops < ops) {
		struct op op = model_next(m);

		model_apply(m, &op);
	}
}

static void tell(const char *dir, uint64_t acked, const struct op *op)
{
	fprintf(stderr,
		"powercut: %s: %s (%" PRIu64 " operations were acknowledged; in flight: %s of f%d, offset %" PRIu64
		", %zu bytes)\n",
		dir, why, acked, model_kind(op->kind), op->slot, op->off, op->len);
}

/* The file that a write was going on in: old or new bytes where it overwrote, all or nothing of what it appended. */
static bool mixed(const struct found *f, int slot, const struct object *old, const struct object *new, const struct op *op)
{
	uint64_t size = f->size[slot];

	if (!f->there[slot])
		return no("f%d is missing", slot);
	if (size != old->size && size != new->size)
		return no("f%d has %" PRIu64 " bytes, neither %" PRIu64 " nor %" PRIu64, slot, size, old->size, new->size);
	for (uint64_t i = 0; i < size; i++) {
		bool inside = i >= op->off && i < op->off + op->len && i < old->size;
		uint8_t is = f->data[slot][i];

		if (is != new->data[i] && !(inside && is == old->data[i]))
			return differs(f, slot, new->data, i);
	}
	return true;
}

static bool exact(const char *dir, uint64_t seed, uint64_t acked, bool tearing)
{
	struct found f;
	struct model before, after;
	struct op op;
	bool good;

	replay(&before, seed, acked, false);
	op = model_next(&before);
	if (!read_dir(dir, &f)) {
		tell(dir, acked, &op);
		model_free(&before);
		free_found(&f);
		return false;
	}
	replay(&after, seed, acked + 1, false);
	good = same(&f, &after) || same(&f, &before);
	if (!good && tearing && (op.kind == OVERWRITE || op.kind == CROSS)) {
		good = true;
		for (int i = 0; i < SLOTS && good; i++)
			good = i == op.slot ? mixed(&f, i, before.slot[i], after.slot[i], &op)
					    : same_file(&f, i, before.slot[i]);
	}
	if (!good)
		tell(dir, acked, &op);
	model_free(&before);
	model_free(&after);
	free_found(&f);
	return good;
}

bool oracle_strict(const char *dir, uint64_t seed, uint64_t acked)
{
	return exact(dir, seed, acked, false);
}

bool oracle_sync(const char *dir, uint64_t seed, uint64_t acked)
{
	return exact(dir, seed, acked, true);
}

/*
 * posix: one byte. An overwrite of what was synced is durable when it returns, unless the file was truncated since. Everything else done
 * since the last fsync may be there or not. `acked`: the operation from which on nothing was acknowledged.
 */
static bool legal_byte(const struct model *m, const struct object *o, uint64_t at, uint8_t is, uint64_t acked, bool truncated)
{
	bool inside = at < o->synced_size;

	for (size_t i = o->nchanges; i > 0; i--) {
		const struct change *c = &o->changes[i - 1];

		if (c->truncate || at < c->off || at >= c->off + c->len)
			continue;
		if (is == model_byte(m->seed, c->op, at))
			return true;
		if (inside && !truncated && c->op < acked)
			return false; /* an acknowledged overwrite is the least there can be */
	}
	if (inside)
		return is == o->synced[at] || (truncated && is == 0);
	return is == 0;
}

static bool legal_file(const struct model *m, const struct found *f, int slot, const struct object *o, uint64_t acked)
{
	uint64_t size = f->size[slot];
	bool truncated = false, known = size == o->synced_size;

	for (size_t i = 0; i < o->nchanges; i++) {
		truncated |= o->changes[i].truncate;
		known |= size == o->changes[i].size;
	}
	if (!known)
		return no("f%d has %" PRIu64 " bytes, a size it never had since it was synced with %" PRIu64, slot, size,
			  o->synced_size);
	for (uint64_t i = 0; i < size; i++)
		if (!legal_byte(m, o, i, f->data[slot][i], acked, truncated))
			return no("f%d: byte %" PRIu64 " of %" PRIu64
				  " is nothing that was there since it was synced with %" PRIu64 " bytes",
				  slot, i, size, o->synced_size);
	return true;
}

static bool legal_state(const struct model *m, const struct found *f, struct object *const at[SLOTS], uint64_t acked,
			bool *named)
{
	*named = false;
	for (int s = 0; s < SLOTS; s++)
		if (f->there[s] != (at[s] != NULL))
			return no("f%d %s", s, at[s] ? "is missing" : "should not be there");
	*named = true;
	for (int s = 0; s < SLOTS; s++)
		if (at[s] && !legal_file(m, f, s, at[s], acked))
			return false;
	return true;
}

/* The names after some beginning of the changes since the floor. What is wrong is told of the last one whose names fit. */
static bool legal_names(const struct model *m, const struct found *f, uint64_t acked)
{
	struct object *at[SLOTS];
	char closest[sizeof(why)] = "";
	bool named;

	memcpy(at, m->base, sizeof(at));
	for (size_t i = 0;; i++) {
		/* A renaming changes two names in one operation. */
		if (i == 0 || i == m->nnames || m->names[i].op != m->names[i - 1].op) {
			if (legal_state(m, f, at, acked, &named))
				return true;
			if (named)
				snprintf(closest, sizeof(closest), "with the names of operation %" PRIu64 ": %.400s",
					 i < m->nnames ? m->names[i].op : m->ops, why);
		}
		if (i == m->nnames)
			break;
		at[m->names[i].slot] = m->names[i].object;
	}
	if (closest[0])
		return no("%s", closest);
	return no("%.300s; neither are the names those of an earlier moment, from operation %" PRIu64 " on", why, m->floor);
}

bool oracle_posix(const char *dir, uint64_t seed, uint64_t acked)
{
	struct found f;
	struct model m;
	struct op op;
	bool good;

	replay(&m, seed, acked, true);
	op = model_next(&m);
	good = read_dir(dir, &f);
	if (good) {
		/* An fsync in flight promises nothing, and may have done everything: both are among what is legal without it. */
		if (op.kind != SYNC)
			model_apply(&m, &op);
		good = legal_names(&m, &f, acked);
	}
	if (!good)
		tell(dir, acked, &op);
	model_free(&m);
	free_found(&f);
	return good;
}
