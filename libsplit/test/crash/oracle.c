/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each mode allows after a crash (docs/data-path.md, "What the modes promise"):
 *
 *   a dead process, every mode, and a power loss in sync and strict: the state after the calls that returned; the call under way has
 *   happened or not. In posix and sync an overwrite under way may have happened in part.
 *
 *   a power loss in posix: some state since, for each file, its last fsync: the tree of one moment, and in it each file as
 *   whole calls had made it. A completed overwrite of bytes that an earlier fsync covered is there in any case.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "crash/model.h"
#include "harness.h"

static char text[300];
static const uint8_t zeros[KERN_BLOCK];

static const uint8_t *found_block(const struct kern_inode *in, unsigned k)
{
	const uint32_t b = in->blk[k];
	const uint8_t *p = kern.pm + (size_t)b * KERN_BLOCK;

	if (!b)
		return zeros;
	if (kern.on_touch)
		kern.on_touch(p, KERN_BLOCK, false);
	return p;
}

static const uint8_t *model_block(const struct model_file *f, unsigned k)
{
	return f->blk[k] ? f->blk[k] : zeros;
}

/* The first byte that differs, or the size when none does. */
static uint64_t same_until(const struct model_file *f, const struct kern_inode *in)
{
	for (uint64_t at = 0; at < f->size; at += KERN_BLOCK) {
		const uint64_t n = f->size - at < KERN_BLOCK ? f->size - at : KERN_BLOCK;
		const uint8_t *a = model_block(f, (unsigned)(at / KERN_BLOCK)),
			      *b = found_block(in, (unsigned)(at / KERN_BLOCK));

		if (memcmp(a, b, n) == 0)
			continue;
		for (uint64_t i = 0; i < n; i++)
			if (a[i] != b[i])
				return at + i;
	}
	return f->size;
}

bool kern_below_control(uint32_t dir)
{
	for (int depth = 0; dir != KERN_ROOT_INO && depth < 8; depth++) {
		bool found = false;

		for (unsigned i = 0; i < KERN_ENTRIES && !found; i++) {
			const struct kern_entry *e = &kern.m.entry[i];

			if (!e->dir || e->ino != dir)
				continue;
			if (strcmp(e->name, SFS_CONTROL_DIR) == 0)
				return true;
			dir = e->dir;
			found = true;
		}
		if (!found)
			return false;
	}
	return false;
}

static unsigned found_names(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < KERN_ENTRIES; i++) {
		const struct kern_entry *e = &kern.m.entry[i];

		n += e->dir && strcmp(e->name, SFS_CONTROL_DIR) != 0 && !kern_below_control(e->dir);
	}
	return n;
}

static const struct kern_inode *found_file(const char *path, int *ino)
{
	char full[40];

	snprintf(full, sizeof(full), "/v/%s", path);
	*ino = kern_lookup(AT_FDCWD, full, false);
	return *ino > 0 ? &kern.m.inode[*ino] : NULL;
}

/* The names, their types and modes, and which of them are the same file. */
static const char *check_names(const struct model *m)
{
	int ino[MODEL_NAMES] = {0};
	unsigned n = 0;

	for (unsigned i = 0; i < MODEL_NAMES; i++) {
		const struct model_name *name = &m->name[i];
		const struct kern_inode *in;

		if (!name->type)
			continue;
		n++;
		in = found_file(name->path, &ino[i]);
		if (!in || in->type != name->type) {
			snprintf(text, sizeof(text), "%s is missing", name->path);
			return text;
		}
		if (in->mode != name->mode) {
			snprintf(text, sizeof(text), "%s has mode %o, expected %o", name->path, in->mode, name->mode);
			return text;
		}
		for (unsigned k = 0; k < i; k++) {
			if (name->file < 0 || m->name[k].file < 0 || !m->name[k].type ||
			    (name->file == m->name[k].file) == (ino[i] == ino[k]))
				continue;
			snprintf(text, sizeof(text), "%s and %s are %s file", name->path, m->name[k].path,
				 ino[i] == ino[k] ? "the same" : "not the same");
			return text;
		}
	}
	if (found_names() != n) {
		snprintf(text, sizeof(text), "there are %u names, expected %u", found_names(), n);
		return text;
	}
	return NULL;
}

static const char *wrong_file(const struct model_name *name, const struct model_file *f, const struct kern_inode *in)
{
	if (in->size != f->size)
		snprintf(text, sizeof(text), "%s has %llu bytes, expected %llu", name->path, (unsigned long long)in->size,
			 (unsigned long long)f->size);
	else
		snprintf(text, sizeof(text), "%s is wrong from byte %llu of %llu on", name->path,
			 (unsigned long long)same_until(f, in), (unsigned long long)f->size);
	return text;
}

static const char *check_exact(const struct model *m)
{
	const char *bad = check_names(m);

	for (unsigned i = 0; !bad && i < MODEL_NAMES; i++) {
		const struct model_name *name = &m->name[i];
		const struct kern_inode *in;
		int ino;

		if (!name->type || name->file < 0)
			continue;
		in = found_file(name->path, &ino);
		if (in->size != m->file[name->file].size || same_until(&m->file[name->file], in) != in->size)
			bad = wrong_file(name, &m->file[name->file], in);
	}
	return bad;
}

/*
 * A call under way that may have happened in part: each of its bytes old or new. One that also makes the file longer only where it is
 * the kernel's; then what it appends is there with the size.
 */
static bool in_part(const struct history *h, uint32_t i)
{
	const struct model_op *op = &h->op[i];
	const struct model *before = &h->state[i], *after = &h->state[i + 1];

	if (op->file < 0 || check_names(before) || (!op->shared && before->file[op->file].size != after->file[op->file].size))
		return false;
	for (unsigned k = 0; k < MODEL_NAMES; k++) {
		const struct model_name *name = &before->name[k];
		const struct model_file *a, *b;
		const struct kern_inode *in;
		int ino;

		if (!name->type || name->file < 0)
			continue;
		in = found_file(name->path, &ino);
		a = &before->file[name->file];
		b = &after->file[name->file];
		if (in->size != a->size && in->size != b->size)
			return false;
		for (uint64_t at = 0; at < in->size; at++) {
			const uint8_t c = found_block(in, (unsigned)(at / KERN_BLOCK))[at % KERN_BLOCK];
			const bool old = at < a->size && c == model_block(a, (unsigned)(at / KERN_BLOCK))[at % KERN_BLOCK];

			if (!old && c != model_block(b, (unsigned)(at / KERN_BLOCK))[at % KERN_BLOCK])
				return false;
		}
	}
	return true;
}

/* ---- power loss in posix */

/* The first state that may still be what is found of the file: its last completed fsync. */
static uint32_t floor_of(const struct history *h, int file, uint32_t done)
{
	for (uint32_t i = done; i > 0; i--)
		if (h->op[i - 1].syncs && h->op[i - 1].file == file)
			return i;
	return 0;
}

/*
 * The newest completed overwrite of the byte that must be there: of a byte that was in the file at its last fsync and ever
 * since. 0: none.
 */
static uint32_t must_have(const struct history *h, int file, uint32_t done, uint32_t floor, uint64_t at)
{
	for (uint32_t i = floor; i <= done; i++)
		if (at >= h->state[i].file[file].size)
			return 0;
	for (uint32_t i = done; i > floor; i--) {
		const struct model_op *op = &h->op[i - 1];

		if (op->cuts && op->file == file)
			return 0;
		if (op->writes && op->file == file && at >= op->off && at < op->off + op->len)
			return i;
	}
	return 0;
}

/* In posix, what a truncate that is not committed has left of its last block. */
static bool zeroed(const struct history *h, int file, uint32_t from, uint32_t last, uint64_t at)
{
	for (uint32_t i = from; i < last; i++)
		if (h->op[i].zeroes && h->op[i].file == file && at >= h->op[i].off &&
		    at < (h->op[i].off + KERN_BLOCK - 1) / KERN_BLOCK * KERN_BLOCK)
			return true;
	return false;
}

/* posix: a dead process's calls are being recovered, by writes of the kernel's; those that nobody has forced since may be there in part. */
static bool recovered(const struct history *h, uint32_t from, uint32_t last)
{
	for (uint32_t i = from; i < last; i++)
		if (h->op[i].dies)
			return true;
	return false;
}

static const char *check_file(const struct history *h, const struct model_name *name, uint32_t done, uint32_t last)
{
	const uint32_t floor = floor_of(h, name->file, done);
	const bool partly = recovered(h, floor, last);
	const struct kern_inode *in;
	uint64_t wrong = 0;
	bool lost = false, overwritten;
	int ino;

	in = found_file(name->path, &ino);
	for (uint32_t k = floor; k <= last; k++) {
		const struct model_file *f = &h->state[k].file[name->file];
		uint64_t at = 0;

		if (k > floor && h->state[k].nfiles == h->state[k - 1].nfiles &&
		    memcmp(f, &h->state[k - 1].file[name->file], sizeof(*f)) == 0)
			continue;
		if (f->size != in->size || name->file >= h->state[k].nfiles)
			continue;
		overwritten = partly;
		for (uint32_t i = k; i < done; i++)
			overwritten |= h->op[i].writes && h->op[i].file == name->file &&
				       h->op[i].off < h->state[i].file[name->file].size;
		for (; at < in->size; at++) {
			const unsigned b = (unsigned)(at / KERN_BLOCK);
			const uint8_t c = found_block(in, b)[at % KERN_BLOCK];

			const uint64_t rest = in->size - at < KERN_BLOCK ? in->size - at : KERN_BLOCK;
			uint32_t from, j;

			if (!overwritten && at % KERN_BLOCK == 0 && memcmp(model_block(f, b), found_block(in, b), rest) == 0) {
				at += rest - 1;
				continue;
			}
			from = overwritten ? must_have(h, name->file, done, floor, at) : 0;

			lost = from > k;
			if (from < k)
				from = k;
			for (j = from; j <= last; j++)
				if (at < h->state[j].file[name->file].size &&
				    model_block(&h->state[j].file[name->file], b)[at % KERN_BLOCK] == c)
					break;
			if (j > last && (c || (!(partly && at >= h->state[floor].file[name->file].size) &&
					       !zeroed(h, name->file, from, last, at))))
				break;
		}
		if (at == in->size)
			return NULL;
		wrong = at > wrong ? at : wrong;
	}
	if (wrong)
		snprintf(text, sizeof(text), "%s (%llu bytes) is of no state since its last fsync, from byte %llu on%s",
			 name->path, (unsigned long long)in->size, (unsigned long long)wrong,
			 lost ? " (an overwrite is lost)" : "");
	else
		snprintf(text, sizeof(text), "%s has %llu bytes, which it had at no call since its last fsync (%llu)",
			 name->path, (unsigned long long)in->size, (unsigned long long)h->state[floor].file[name->file].size);
	return text;
}

static const char *check_posix(const struct history *h, uint32_t done, bool in_flight)
{
	const uint32_t last = done + in_flight;
	static char first[sizeof(text)];
	const char *bad = "no tree is possible";
	bool right_names = false;
	uint32_t floor = 0;

	/* The journal is in order: what a file's fsync committed, the names that the file had before are in too. */
	for (uint32_t i = 0; i < done; i++)
		for (uint32_t k = i; h->op[i].syncs && k > floor; k--)
			if (h->op[k - 1].names && h->op[k - 1].file == h->op[i].file)
				floor = k;
	for (uint32_t k = floor; k <= last; k++) {
		if (k > floor && !h->op[k - 1].names)
			continue;
		bad = check_names(&h->state[k]);
		right_names |= !bad;
		for (unsigned i = 0; !bad && i < MODEL_NAMES; i++)
			if (h->state[k].name[i].type && h->state[k].name[i].file >= 0)
				bad = check_file(h, &h->state[k].name[i], done, last);
		if (!bad)
			return NULL;
		/* A sentence about a file says more than one about the names of another moment. */
		if (right_names || k == floor)
			strcpy(first, bad);
		right_names = false;
	}
	return first;
}

const char *model_check(const struct history *h, enum crash_kind kind, uint32_t done, bool in_flight)
{
	const char *bad;

	if (kind == CRASH_POWER && (h->mode == SFS_POSIX || !h->dax))
		return check_posix(h, done, in_flight);
	bad = check_exact(&h->state[done]);
	if (!bad)
		return NULL;
	if (in_flight && !check_exact(&h->state[done + 1]))
		return NULL;
	if (in_flight && ((h->op[done].writes && h->mode != SFS_STRICT) || h->op[done].parts) && in_part(h, done))
		return NULL;
	/* The sentence about the call that had to be there. */
	return check_exact(&h->state[done]);
}
