/* SPDX-License-Identifier: Apache-2.0 */
/* The files that the records of one log name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "recover/recovering.h"

struct sfs_rec_file **sfs_rec_slot(struct sfs_recovering *rv, uint64_t ino, uint32_t gen)
{
	struct sfs_rec_file **p = &rv->table[((ino ^ gen) * SFS_HASH_FACTOR >> 20) & (rv->table_size - 1)];

	while (*p && ((*p)->id.ino != ino || (*p)->id.gen != gen))
		p = &(*p)->next;
	return p;
}

struct sfs_rec_file *sfs_rec_file_get(struct sfs_recovering *rv, uint64_t ino, uint32_t gen)
{
	struct sfs_rec_file **p = sfs_rec_slot(rv, ino, gen), *f;

	if (*p)
		return *p;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->id.ino = ino;
	f->id.gen = gen;
	f->fd = -1;
	*p = f;
	rv->nfiles++;
	if (rv->nfiles > rv->table_size * 2) {
		struct sfs_rec_file **old = rv->table, **table = calloc(rv->table_size * 4, sizeof(*table));
		const uint32_t old_size = rv->table_size;

		if (!table)
			return f; /* longer chains do no harm */
		rv->table = table;
		rv->table_size *= 4;
		for (uint32_t i = 0; i < old_size; i++) {
			struct sfs_rec_file *next;

			for (struct sfs_rec_file *g = old[i]; g; g = next) {
				next = g->next;
				g->next = NULL;
				*sfs_rec_slot(rv, g->id.ino, g->id.gen) = g;
			}
		}
		free(old);
	}
	return f;
}

int sfs_rec_fail(struct sfs_recovering *rv, const struct sfs_rec_file *f, int err, const char *what)
{
	return sfs_fail(rv->why, err, "%s inode %llu of %s: %s%s", what, (unsigned long long)f->id.ino, rv->root->path,
			strerror(-err), err == -ENOSPC ? "; free some space and run 'splitfs recover' again" : "");
}

void sfs_rec_file_close(struct sfs_recovering *rv, struct sfs_rec_file *f)
{
	if (f->fd < 0)
		return;
	close(f->fd);
	f->fd = -1;
	rv->open[f->open_index] = NULL;
}

/* 0 with f->fd open, -ENOENT when the file does not exist any more. */
int sfs_rec_file_open(struct sfs_recovering *rv, struct sfs_rec_file *f)
{
	int fd;

	if (f->fd >= 0)
		return 0;
	if (rv->open[rv->next_open])
		sfs_rec_file_close(rv, rv->open[rv->next_open]);
	fd = sfs_lookup_open(&rv->lookup, &f->id);
	if (fd == -ENOENT) {
		f->id.found = false;
		return -ENOENT;
	}
	if (fd < 0)
		return sfs_rec_fail(rv, f, fd, "open");
	f->fd = fd;
	f->open_index = rv->next_open;
	rv->open[rv->next_open] = f;
	rv->next_open = (rv->next_open + 1) % SFS_OPEN_TARGETS;
	if (!f->stripped) {
		f->stripped = true;
		fd = sfs_replay_strip(f->fd);
		if (fd)
			return sfs_rec_fail(rv, f, fd, "chmod");
	}
	return 0;
}
