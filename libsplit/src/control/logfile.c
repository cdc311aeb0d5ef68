/* SPDX-License-Identifier: Apache-2.0 */
/* Operation logs as files: made, found, removed. Their records are the client's (record/log.c) and recovery's business. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "control/store.h"

uint32_t sfs_log_seed(const uint8_t uuid[16], uint32_t id)
{
	return crc32c(crc32c(0, uuid, 16), &id, sizeof(id));
}

static off_t bytes_of(uint32_t slots)
{
	return SFS_LOG_RECORDS_OFFSET + (off_t)slots * (off_t)sizeof(struct sfs_record);
}

static int header(const struct sfs_root *r, uint32_t id, uint32_t slots, struct sfs_log_header *h)
{
	*h = (struct sfs_log_header){.magic = SFS_LOG_MAGIC, .format = SFS_FORMAT, .log_id = id, .slots = slots, .epoch = 1};
	memcpy(h->uuid, r->uuid, sizeof(h->uuid));
	h->seed = sfs_log_seed(r->uuid, id);
	h->dax = r->dax;
	return sfs_boot_id(h->boot_id);
}

int sfs_log_create(const struct sfs_root *r, uint32_t id, uint32_t slots, uint32_t slots_max, struct sfs_why *why)
{
	const off_t bytes = bytes_of(slots);
	struct sfs_log_header h;
	char tmp[32], name[32];
	int fd, err;

	sfs_number_name(tmp, id, ".tmp");
	sfs_number_name(name, id, "");
	err = header(r, id, slots, &h);
	h.slots_max = slots_max;
	if (err)
		return sfs_fail(why, err, "read the boot id: %s", strerror(-err));
	fd = openat(r->log, tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sfs_fail(why, -errno, "create a log in %s: %s", r->path, strerror(errno));
	/* On persistent memory no store is to find a block that was never written: making it one is a journal commit. */
	err = r->dax || fallocate(fd, 0, 0, bytes) < 0 ? sfs_fill_zero(fd, (uint64_t)bytes) : 0;
	if (!err && pwrite(fd, &h, sizeof(h), 0) != sizeof(h))
		err = errno ? -errno : -ENOSPC;
	if (!err)
		err = sfs_root_own(r, fd);
	if (!err && r->dax && fsync(fd) < 0)
		err = -errno;
	if (!err && renameat(r->log, tmp, r->log, name) < 0)
		err = -errno;
	if (!err && r->dax && fsync(r->log) < 0)
		err = -errno;
	if (err) {
		unlinkat(r->log, tmp, 0);
		close(fd);
		return sfs_fail(why, err, "make a log in %s: %s", r->path, strerror(-err));
	}
	return fd;
}

static int put_zeros(int fd, off_t from, off_t to)
{
	static const char zeros[65536];

	while (from < to) {
		const size_t n = to - from < (off_t)sizeof(zeros) ? (size_t)(to - from) : sizeof(zeros);
		const ssize_t w = pwrite(fd, zeros, n, from);

		if (w <= 0)
			return w < 0 ? -errno : -ENOSPC;
		from += w;
	}
	return 0;
}

/* [from, to) of the file gets space, of zeros. */
static int extend(const struct sfs_root *r, int fd, off_t from, off_t to)
{
	int err;

	/* On persistent memory no store is to find a block that was never written: making it one is a journal commit. */
	if (!r->dax && fallocate(fd, 0, from, to - from) == 0)
		return 0;
	err = put_zeros(fd, from, to);
	return err ? err : r->dax && fsync(fd) < 0 ? -errno : 0;
}

int sfs_log_grow(const struct sfs_root *r, int fd, uint32_t from, uint32_t slots)
{
	int err = extend(r, fd, bytes_of(from), bytes_of(slots));

	if (err) {
		if (ftruncate(fd, bytes_of(from)) < 0)
			return -errno;
		return err;
	}
	if (pwrite(fd, &slots, sizeof(slots), offsetof(struct sfs_log_header, slots)) != sizeof(slots))
		return errno ? -errno : -EIO;
	return r->dax && fsync(fd) < 0 ? -errno : 0;
}

struct pages {
	struct sfs_log_header header;
	struct sfs_log_stats stats;
};

static int put(int fd, const void *p, size_t n, off_t at)
{
	const ssize_t w = pwrite(fd, p, n, at);

	return w == (ssize_t)n ? 0 : w < 0 ? -errno : -ENOSPC;
}

static int put_moves(int fd, uint32_t moves)
{
	return put(fd, &moves, sizeof(moves), offsetof(struct sfs_log_header, former.moves));
}

/* A header as of a new log, with what was counted in the pages until now. */
static int renew_pages(const struct sfs_root *r, uint32_t id, uint32_t slots, struct pages *p)
{
	const struct sfs_log_header old = p->header;
	struct sfs_former *f = &p->header.former;
	struct sfs_counters counted;
	int err;

	sfs_log_stats_sum(&p->stats, &counted);
	err = header(r, id, slots, &p->header);
	p->header.slots_max = old.slots_max;
	/* Its upper half is no record's (layout.h). */
	p->header.epoch = (uint32_t)old.epoch + 1u ? (uint32_t)old.epoch + 1u : 1;
	*f = old.former;
	f->moves |= 1; /* it is odd already where an agent was killed */
	sfs_counters_add(&f->counters, &counted);
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		f->latency.sum_ns[kind] += old.latency.sum_ns[kind];
		for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
			f->latency.bucket[kind][i] += old.latency.bucket[kind][i];
	}
	memset(&p->stats, 0, sizeof(p->stats));
	return err;
}

/* No record of an earlier client is left, whatever epoch it has: clients can write any. */
static int renew_records(int fd, off_t end)
{
	const off_t data = lseek(fd, SFS_LOG_RECORDS_OFFSET, SEEK_DATA);

	/* Space that nobody has stored to. */
	if (data < 0 && errno == ENXIO)
		return 0;
	return put_zeros(fd, SFS_LOG_RECORDS_OFFSET, end);
}

int sfs_log_renew(const struct sfs_root *r, uint32_t id, uint32_t slots)
{
	const int fd = sfs_number_alone(r->log, id, (uint64_t)bytes_of(slots));
	struct pages p;
	int err = 0;

	if (fd < 0)
		return fd;
	if (pread(fd, &p, sizeof(p), 0) != (ssize_t)sizeof(p))
		err = -EIO;
	if (!err)
		err = renew_pages(r, id, slots, &p);
	/* In this order: whoever reads the first page before and the second one after finds `moves` changed. */
	if (!err)
		err = put(fd, &p, sizeof(p), 0);
	if (!err)
		err = put_moves(fd, p.header.former.moves + 1);
	if (!err)
		err = renew_records(fd, bytes_of(slots));
	if (!err && r->dax && fsync(fd) < 0)
		err = -errno;
	if (!err)
		return fd;
	close(fd);
	return err;
}

int sfs_log_memory(const struct sfs_root *r, uint32_t id, uint32_t slots, uint64_t *ino)
{
	struct sfs_log_header h;
	struct stat st;
	int fd = memfd_create("splitfs-log", MFD_CLOEXEC | MFD_ALLOW_SEALING), err = 0;

	if (fd < 0)
		return -errno;
	err = header(r, id, slots, &h);
	h.dax = 0;
	if (!err && (ftruncate(fd, bytes_of(slots)) < 0 || pwrite(fd, &h, sizeof(h), 0) != sizeof(h) || fstat(fd, &st) < 0 ||
		     fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
		err = errno ? -errno : -ENOSPC;
	if (err) {
		close(fd);
		return err;
	}
	*ino = st.st_ino;
	return fd;
}

int sfs_log_open(const struct sfs_root *r, uint32_t id, int flags)
{
	return sfs_number_open(r->log, id, flags);
}

int sfs_log_remove(const struct sfs_root *r, uint32_t id)
{
	return sfs_number_remove(r->log, id, "");
}

int sfs_log_list(const struct sfs_root *r, struct sfs_numbers *logs, struct sfs_numbers *leases, struct sfs_why *why)
{
	int err = sfs_list_dir(r->log, "", logs);

	if (!err) {
		err = sfs_list_dir(r->log, ".lease", leases);
		if (err)
			sfs_numbers_free(logs);
	}
	return err ? sfs_fail(why, err, "list the logs of %s: %s", r->path, strerror(-err)) : 0;
}

void sfs_log_stats_sum(const struct sfs_log_stats *stats, struct sfs_counters *c)
{
	memset(c, 0, sizeof(*c));
	for (unsigned i = 0; i < SFS_COUNTER_PLACES; i++)
		sfs_counters_add(c, &stats->place[i].counters);
}

/* The pages from one moment, in which the agent moved nothing. A client may write there what it likes: not for ever. */
static int read_pages(int fd, struct pages *p)
{
	for (int tries = 0; tries < 100; tries++) {
		uint32_t moves;
		const ssize_t n = pread(fd, p, sizeof(*p), 0);

		if (n != (ssize_t)sizeof(*p))
			return n < 0 ? -errno : -EINVAL;
		if (pread(fd, &moves, sizeof(moves), offsetof(struct sfs_log_header, former.moves)) == (ssize_t)sizeof(moves) &&
		    moves == p->header.former.moves && moves % 2 == 0)
			break;
		sched_yield();
	}
	return 0;
}

static void add_latency(struct sfs_latencies *to, const struct sfs_latency *l)
{
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		to->sum_ns[kind] += l->sum_ns[kind];
		for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
			to->bucket[kind][i] += l->bucket[kind][i];
	}
}

int sfs_log_usage(int logfd, uint8_t mode, struct sfs_usage *u, struct sfs_usage *former)
{
	struct pages p;
	int err;

	memset(u, 0, sizeof(*u));
	memset(former, 0, sizeof(*former));
	err = read_pages(logfd, &p);
	if (err)
		return err;
	sfs_log_stats_sum(&p.stats, &u->counters);
	former->counters = p.header.former.counters;
	if (mode < SFS_MODES) {
		add_latency(&u->latency[mode], &p.header.latency);
		add_latency(&former->latency[mode], &p.header.former.latency);
	}
	return 0;
}

int sfs_log_usage_all(int logfd, uint8_t mode, struct sfs_usage *u)
{
	struct sfs_usage former;
	const int err = sfs_log_usage(logfd, mode, u, &former);

	sfs_usage_add(u, &former);
	return err;
}
