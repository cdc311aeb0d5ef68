/* SPDX-License-Identifier: Apache-2.0 */
/* The calls, applied to a tree in memory. Contents are blocks that are never changed, so that a state costs its structure. */
#include "crash/model.h"

#include <stdlib.h>
#include <string.h>

#include "harness.h"

static struct content {
	struct content *next;
	uint8_t bytes[KERN_BLOCK];
} * used, *spare;

void model_reset(void)
{
	struct content *c;

	while ((c = used)) {
		used = c->next;
		c->next = spare;
		spare = c;
	}
}

static uint8_t *content(const uint8_t *old)
{
	struct content *c = spare;

	if (c)
		spare = c->next;
	else
		c = malloc(sizeof(*c));
	CHECK(c);
	c->next = used;
	used = c;
	if (old)
		memcpy(c->bytes, old, KERN_BLOCK);
	else
		memset(c->bytes, 0, KERN_BLOCK);
	return c->bytes;
}

struct model_name *model_find(struct model *m, const char *path)
{
	for (unsigned i = 0; i < MODEL_NAMES; i++)
		if (m->name[i].type && strcmp(m->name[i].path, path) == 0)
			return &m->name[i];
	return NULL;
}

int model_create(struct model *m, const char *path, mode_t mode)
{
	for (unsigned i = 0; i < MODEL_NAMES; i++) {
		if (m->name[i].type)
			continue;
		CHECK(m->nfiles < (int)MODEL_FILES);
		m->name[i] = (struct model_name){.type = KERN_FILE, .file = (int8_t)m->nfiles, .mode = (uint16_t)mode};
		snprintf(m->name[i].path, sizeof(m->name[i].path), "%s", path);
		m->file[m->nfiles] = (struct model_file){0};
		return m->nfiles++;
	}
	FAIL("more than %u names in the model", MODEL_NAMES);
}

static void fill(struct model_file *f, uint64_t off, const void *src, uint64_t n)
{
	CHECK(off + n <= (uint64_t)KERN_FILE_BLOCKS * KERN_BLOCK);
	for (uint64_t done = 0, part; done < n; done += part) {
		const uint64_t at = off + done;
		uint8_t *b = content(f->blk[at / KERN_BLOCK]);

		part = KERN_BLOCK - at % KERN_BLOCK;
		part = part < n - done ? part : n - done;
		if (src)
			memcpy(b + at % KERN_BLOCK, (const char *)src + done, part);
		else
			memset(b + at % KERN_BLOCK, 0, part);
		f->blk[at / KERN_BLOCK] = b;
	}
}

void model_write(struct model *m, int file, uint64_t off, const void *src, uint64_t n)
{
	struct model_file *f = &m->file[file];

	fill(f, off, src, n);
	if (off + n > f->size)
		f->size = off + n;
}

void model_punch(struct model *m, int file, uint64_t off, uint64_t n)
{
	fill(&m->file[file], off, NULL, n);
}

void model_truncate(struct model *m, int file, uint64_t size)
{
	struct model_file *f = &m->file[file];

	if (size < f->size)
		fill(f, size, NULL, f->size - size);
	f->size = size;
}
