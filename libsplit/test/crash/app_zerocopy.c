/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that copy nothing: swap, patch, peek; and what the program keeps of them. */
#include "crash/app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "calls/calls.h"
#include "io/io.h"
#include "crash/agent.h"
#include "harness.h"

/* n bytes of a file as it is in the model. */
static uint8_t *bytes_of(const struct model *m, int file, uint64_t off, uint64_t n)
{
	uint8_t *p = calloc(1, n);

	CHECK(p);
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *blk = m->file[file].blk[(off + i) / KERN_BLOCK];

		p[i] = blk ? blk[(off + i) % KERN_BLOCK] : 0;
	}
	return p;
}

/* Both or neither: not a write of which a part may be there. */
void app_swap(struct app *a, struct range x, struct range y)
{
	struct model_op *op = app_begin(a, "swap");
	const int f = a->slot[x.slot].file, g = a->slot[y.slot].file;
	uint8_t *of_f = bytes_of(a->m, f, x.off, x.n), *of_g = bytes_of(a->m, g, y.off, y.n);

	op->file = f;
	model_write(a->m, f, x.off, of_g, x.n);
	model_write(a->m, g, y.off, of_f, y.n);
	app_must(sfs_swap(a->slot[x.slot].fd, (off_t)x.off, a->slot[y.slot].fd, (off_t)y.off, x.n), "swap");
	free(of_f);
	free(of_g);
	app_end(a);
}

static void keep(struct app *a, const void *p, size_t n, bool buffer)
{
	int i = 0;

	while (i < KEPT && a->kept[i].p)
		i++;
	CHECK(i < KEPT);
	a->kept[i] = (struct kept){.p = p, .n = n, .was = malloc(n), .buffer = buffer};
	CHECK(a->kept[i].was);
	memcpy(a->kept[i].was, p, n);
}

bool app_keeps(const struct app *a)
{
	return a->kept[0].p;
}

/* Not a call that is checked: the pool is made before, and the buffer filled. */
static uint8_t *buffer(struct app *a, uint64_t off, const void *p, uint64_t n)
{
	void *buf = NULL;

	if (!a->pool) {
		const int dir = kern_open(AT_FDCWD, "/v", O_RDONLY | O_DIRECTORY, 0);

		a->pool = (int)app_must(sfs_pool_create(dir, 1 << 20), "pool");
		kern_call(SYS_close, dir, 0, 0, 0, 0, 0, NULL);
	}
	app_must(sfs_alloc(a->pool, (off_t)off, n, &buf), "alloc");
	record_store(buf, p, n);
	return buf;
}

void app_patch(struct app *a, int s, uint64_t off, const void *p, uint64_t n, bool kept)
{
	uint8_t *buf;

	app_begin_write(a, "patch", s, off, p, n);
	buf = buffer(a, off, p, n);
	CHECK_EQ(app_must(sfs_patch(a->slot[s].fd, buf, n, (off_t)off), "patch"), n);
	if (kept)
		keep(a, buf, n, true);
	else
		app_must(sfs_free(buf), "free");
	app_end(a);
}

void app_peek(struct app *a, int s)
{
	const uint64_t size = a->r->h.state[a->n].file[a->slot[s].file].size;
	const void *p = NULL;
	size_t got = 0;
	int r;

	app_begin(a, "peek");
	r = sfs_peek(a->slot[s].fd, 0, KERN_FILE_BLOCKS * KERN_BLOCK, &p, &got);
	/* Another process has the file, too; or it has holes. */
	if (r != -ENOTSUP && r != SFS_PEEK_COPY) {
		app_must(r, "peek");
		CHECK_EQ(got, size);
		if (p)
			keep(a, p, got, false);
	}
	app_end(a);
}

void app_let_go(struct app *a)
{
	app_begin(a, "let go");
	app_must(a->kept[0].buffer ? sfs_free((void *)a->kept[0].p) : sfs_unpeek(a->kept[0].p), "let go");
	free(a->kept[0].was);
	memmove(a->kept, a->kept + 1, (KEPT - 1) * sizeof(a->kept[0]));
	a->kept[KEPT - 1] = (struct kept){0};
	app_end(a);
}
