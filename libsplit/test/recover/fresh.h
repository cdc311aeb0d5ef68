/* SPDX-License-Identifier: Apache-2.0 */
/* A world with one log, made anew for each rule of docs/recovery.md. */
#ifndef TEST_FRESH_H
#define TEST_FRESH_H

#include "world.h"

static struct world w;
static struct world_log l;

static inline void fresh(uint32_t id)
{
	world_new(&w);
	world_log(&w, &l, id, 128);
}

/* The same with a file of `size` times 'o' that the log may name. */
static inline struct world_file fresh_file(uint32_t id, size_t size)
{
	struct world_file f;

	fresh(id);
	f = world_file(&w, "f", 'o', size);
	world_allow(&l, &f);
	return f;
}

static inline void end_file(struct world_file *f)
{
	close(f->fd);
	world_end(&w);
}

static inline struct sfs_recovery end(void)
{
	struct sfs_recovery s = world_recover(&w);

	world_log_close(&l);
	CHECK_EQ(world_entries(&w, w.root.log), 0);
	CHECK_EQ(world_entries(&w, w.root.pool), 0);
	return s;
}

#endif
