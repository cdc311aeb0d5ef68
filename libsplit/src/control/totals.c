/* SPDX-License-Identifier: Apache-2.0 */
/* ROOT/.splitfs/totals: counters of processes and recoveries that are gone. Statistics: lost ones are started anew at zero. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "control/store.h"

#define READ_TRIES   16u
#define TOTALS_MAGIC 0x534c54544f544653ull

/* So long they were before they had latencies. */
#define TOTALS_SHORT offsetof(struct sfs_totals, latency)

static uint32_t totals_crc(const struct sfs_totals *t, size_t n)
{
	struct sfs_totals copy = *t;

	copy.crc = 0;
	return crc32c(0, &copy, n);
}

void sfs_latencies_add(struct sfs_latencies *to, const struct sfs_latencies *from)
{
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		to->sum_ns[kind] += from->sum_ns[kind];
		for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
			to->bucket[kind][i] += from->bucket[kind][i];
	}
}

void sfs_usage_add(struct sfs_usage *to, const struct sfs_usage *from)
{
	sfs_counters_add(&to->counters, &from->counters);
	for (unsigned mode = 0; mode < SFS_MODES; mode++)
		sfs_latencies_add(&to->latency[mode], &from->latency[mode]);
}

void sfs_counters_add(struct sfs_counters *to, const struct sfs_counters *from)
{
#define ADD(name) to->name += from->name;
	SFS_COUNTERS(ADD)
#undef ADD
}

int sfs_totals_read(const struct sfs_root *r, struct sfs_totals *t)
{
	const int fd = openat(r->ctl, "totals", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool whole = false;
	ssize_t n = 0;

	if (fd < 0 && errno != ENOENT)
		return -errno;
	/* Somebody may be writing them at this moment. */
	for (unsigned try = 0; fd >= 0 && !whole && try < READ_TRIES; try++) {
		n = pread(fd, t, sizeof(*t), 0);
		whole = (n == (ssize_t)sizeof(*t) || n == (ssize_t)TOTALS_SHORT) && t->magic == TOTALS_MAGIC &&
			t->format == SFS_FORMAT && t->crc == totals_crc(t, (size_t)n);
	}
	if (fd >= 0)
		close(fd);
	if (!whole)
		memset(t, 0, sizeof(*t));
	else if (n == (ssize_t)TOTALS_SHORT)
		memset(t->latency, 0, sizeof(t->latency));
	return 0;
}

/* Over the ones before: they are written for each process that ends, and a name made anew for each costs more than all else. */
static bool over_the_old(const struct sfs_root *r, const struct sfs_totals *t)
{
	const int fd = openat(r->ctl, "totals", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	bool done;

	if (fd < 0)
		return false;
	done = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(*t) &&
	       pwrite(fd, t, sizeof(*t), 0) == (ssize_t)sizeof(*t);
	close(fd);
	return done;
}

int sfs_totals_write(const struct sfs_root *r, struct sfs_totals *t)
{
	int fd, err = 0;

	t->magic = TOTALS_MAGIC;
	t->format = SFS_FORMAT;
	t->crc = totals_crc(t, sizeof(*t));
	if (over_the_old(r, t))
		return 0;
	fd = openat(r->ctl, "totals.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, t, sizeof(*t)) != (ssize_t)sizeof(*t))
		err = errno ? -errno : -ENOSPC;
	if (!err)
		err = sfs_root_own(r, fd);
	close(fd);
	if (!err && renameat(r->ctl, "totals.tmp", r->ctl, "totals") < 0)
		err = -errno;
	if (err)
		unlinkat(r->ctl, "totals.tmp", 0);
	return err;
}
