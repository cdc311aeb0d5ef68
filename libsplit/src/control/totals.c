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

/*
 * As the last release has it, which finds its own part whole whatever is behind it. What came later has a checksum of
 * its own, over all of the file, so that the parts are of one moment.
 */
struct totals_head {
	uint64_t magic;
	uint32_t format;
	uint32_t crc; /* CRC32C of the head with this field zero */
	struct sfs_counter_place counters;
	uint64_t recovery_runs, recovery_records, recovery_replayed, recovery_quarantined;
	uint64_t settled_log;
};
_Static_assert(sizeof(struct totals_head) == 184, "the head stays as it is");

struct totals_file {
	struct totals_head head;
	uint32_t crc; /* CRC32C of the whole file with this field zero */
	uint32_t pad;
	struct sfs_later_place later;
	struct sfs_latencies latency[SFS_MODES];
};

static uint32_t head_crc(const struct totals_head *head)
{
	struct totals_head copy = *head;

	copy.crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

static uint32_t file_crc(const struct totals_file *f)
{
	struct totals_file copy = *f;

	copy.crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

/* Of the last release, and then what came later is zero, or ours. */
static bool whole(const struct totals_file *f, ssize_t n)
{
	if (n != (ssize_t)sizeof(f->head) && n != (ssize_t)sizeof(*f))
		return false;
	return f->head.magic == TOTALS_MAGIC && f->head.format == SFS_FORMAT && f->head.crc == head_crc(&f->head) &&
	       (n == (ssize_t)sizeof(f->head) || f->crc == file_crc(f));
}

static void from_file(struct sfs_totals *t, const struct totals_file *f)
{
	*t = (struct sfs_totals){
		.recovery_runs = f->head.recovery_runs,
		.recovery_records = f->head.recovery_records,
		.recovery_replayed = f->head.recovery_replayed,
		.recovery_quarantined = f->head.recovery_quarantined,
		.settled_log = f->head.settled_log,
	};
#define TAKE(name) t->counters.name = sfs_sum(f->head.counters.name, 0);
	SFS_PAGE_COUNTERS(TAKE)
#undef TAKE
#define TAKE(name) t->counters.name = sfs_sum(f->later.name, 0);
	SFS_LATER_COUNTERS(TAKE)
#undef TAKE
	for (unsigned mode = 0; mode < SFS_MODES; mode++)
		sfs_latencies_add(&t->latency[mode], &f->latency[mode]);
}

static void to_file(struct totals_file *f, const struct sfs_totals *t)
{
	*f = (struct totals_file){
		.head =
			{
				.magic = TOTALS_MAGIC,
				.format = SFS_FORMAT,
				.recovery_runs = t->recovery_runs,
				.recovery_records = t->recovery_records,
				.recovery_replayed = t->recovery_replayed,
				.recovery_quarantined = t->recovery_quarantined,
				.settled_log = t->settled_log,
			},
	};
#define PUT(name) f->head.counters.name = t->counters.name;
	SFS_PAGE_COUNTERS(PUT)
#undef PUT
#define PUT(name) f->later.name = t->counters.name;
	SFS_LATER_COUNTERS(PUT)
#undef PUT
	memcpy(f->latency, t->latency, sizeof(f->latency));
	f->head.crc = head_crc(&f->head);
	f->crc = file_crc(f);
}

void sfs_latencies_add(struct sfs_latencies *to, const struct sfs_latencies *from)
{
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		to->sum_ns[kind] = sfs_sum(to->sum_ns[kind], from->sum_ns[kind]);
		for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
			to->bucket[kind][i] = sfs_sum(to->bucket[kind][i], from->bucket[kind][i]);
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
#define ADD(name) to->name = sfs_sum(to->name, from->name);
	SFS_COUNTERS(ADD)
#undef ADD
}

int sfs_totals_read(const struct sfs_root *r, struct sfs_totals *t)
{
	const int fd = openat(r->ctl, "totals", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct totals_file f;
	bool found = false;

	if (fd < 0 && errno != ENOENT)
		return -errno;
	/* Somebody may be writing them at this moment. */
	for (unsigned try = 0; fd >= 0 && !found && try < READ_TRIES; try++) {
		memset(&f, 0, sizeof(f));
		found = whole(&f, pread(fd, &f, sizeof(f), 0));
	}
	if (fd >= 0)
		close(fd);
	if (found)
		from_file(t, &f);
	else
		memset(t, 0, sizeof(*t));
	return 0;
}

/* Over the ones before: they are written for each process that ends, and a name made anew for each costs more than all else. */
static bool over_the_old(const struct sfs_root *r, const struct totals_file *f)
{
	const int fd = openat(r->ctl, "totals", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	bool done;

	if (fd < 0)
		return false;
	done = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(*f) &&
	       pwrite(fd, f, sizeof(*f), 0) == (ssize_t)sizeof(*f);
	close(fd);
	return done;
}

int sfs_totals_write(const struct sfs_root *r, const struct sfs_totals *t)
{
	struct totals_file f;
	int fd, err = 0;

	to_file(&f, t);
	if (over_the_old(r, &f))
		return 0;
	fd = openat(r->ctl, "totals.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, &f, sizeof(f)) != (ssize_t)sizeof(f))
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
