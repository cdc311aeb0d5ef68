/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files this process has mapped. A mapping outlives the descriptor that it was made with, and nobody tells us when the last one of
 * a file is gone, so a file that has been mapped once stays the kernel's, also when it is closed and opened again: its bytes must be
 * where the mapping looks.
 */
#include <errno.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/sys.h"
#include "files/inode.h"

struct mapped {
	dev_t dev;
	ino_t ino;
	uint32_t gen;
	uint32_t used;
};

/* A hash table with open addressing, never more than half full; under sfs_files.lock. */
static struct mapped *table;
static uint32_t room, entries;

static struct mapped *place(struct mapped *in, uint32_t n, const struct mapped *key)
{
	const uint64_t hash = (key->ino ^ key->dev << 32 ^ (uint64_t)key->gen << 16) * SFS_HASH_FACTOR;
	uint32_t i = (uint32_t)(hash >> 32) & (n - 1);

	while (in[i].used && (in[i].dev != key->dev || in[i].ino != key->ino || in[i].gen != key->gen))
		i = (i + 1) & (n - 1);
	return &in[i];
}

static bool grow(void)
{
	const uint32_t n = room ? 2 * room : 128;
	struct mapped *bigger = sys_mmap(NULL, n * sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (sys_is_err(bigger))
		return false;
	for (uint32_t i = 0; i < room; i++)
		if (table[i].used)
			*place(bigger, n, &table[i]) = table[i];
	if (table)
		sys_munmap(table, room * sizeof(*table));
	table = bigger;
	room = n;
	return true;
}

static struct mapped key_of(const struct sfs_inode *in)
{
	return (struct mapped){.dev = in->dev, .ino = in->ino, .gen = in->gen, .used = 1};
}

int sfs_mapped(int fd)
{
	const struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct mapped key, *at;
	int r = 0;

	if (!ofd)
		return 0;
	key = key_of(ofd->inode);
	sfs_mutex_lock(&sfs_files.lock);
	if (2 * entries >= room && !grow()) {
		r = -ENOMEM;
	} else if (!(at = place(table, room, &key))->used) {
		*at = key;
		entries++;
	}
	sfs_mutex_unlock(&sfs_files.lock);
	return r;
}

bool sfs_was_mapped(const struct sfs_inode *in)
{
	const struct mapped key = key_of(in);
	bool was;

	if (load_acquire(&entries) == 0)
		return false;
	sfs_mutex_lock(&sfs_files.lock);
	was = place(table, room, &key)->used;
	sfs_mutex_unlock(&sfs_files.lock);
	return was;
}
