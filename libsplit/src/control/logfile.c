/* SPDX-License-Identifier: Apache-2.0 */
/* Operation logs as files: made, found, removed. Their records are the client's (record/log.c) and recovery's business. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
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

/* [from, to) of the file gets space, of zeros. */
static int extend(const struct sfs_root *r, int fd, off_t from, off_t to)
{
	static const char zeros[65536];

	/* On persistent memory no store is to find a block that was never written: making it one is a journal commit. */
	if (!r->dax && fallocate(fd, 0, from, to - from) == 0)
		return 0;
	while (from < to) {
		const size_t n = to - from < (off_t)sizeof(zeros) ? (size_t)(to - from) : sizeof(zeros);
		const ssize_t w = pwrite(fd, zeros, n, from);

		if (w <= 0)
			return w < 0 ? -errno : -ENOSPC;
		from += w;
	}
	return r->dax && fsync(fd) < 0 ? -errno : 0;
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

int sfs_log_renew(const struct sfs_root *r, uint32_t id, int fd, uint32_t slots, uint32_t slots_max)
{
	static const struct sfs_log_stats none;
	struct sfs_log_header old, h;
	const struct iovec both[2] = {{&h, sizeof(h)}, {(void *)&none, sizeof(none)}};
	int err = header(r, id, slots, &h);

	if (err)
		return err;
	if (pread(fd, &old, sizeof(old), 0) != (ssize_t)sizeof(old))
		return errno ? -errno : -EIO;
	h.slots_max = slots_max;
	h.epoch = old.epoch + 1;
	if (pwritev(fd, both, 2, 0) != (ssize_t)(sizeof(h) + sizeof(none)))
		return errno ? -errno : -ENOSPC;
	return r->dax && fdatasync(fd) < 0 ? -errno : 0;
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

uint64_t sfs_log_mark(uint32_t id, int fd)
{
	uint64_t epoch = 0;

	if (pread(fd, &epoch, sizeof(epoch), offsetof(struct sfs_log_header, epoch)) != (ssize_t)sizeof(epoch))
		epoch = 0;
	return epoch << 32 | id;
}

void sfs_log_counters(const struct sfs_log_header *header, const struct sfs_log_stats *stats, struct sfs_counters *c)
{
	memset(c, 0, sizeof(*c));
#define ADD(name) c->name += sfs_counted(place->name);
	for (unsigned i = 0; i < SFS_COUNTER_PLACES; i++) {
		const struct sfs_counter_place *place = &stats->place[i];

		SFS_PAGE_COUNTERS(ADD)
	}
	for (unsigned i = 0; i < SFS_LATER_PLACES; i++) {
		const struct sfs_later_place *place = &header->later[i];

		SFS_LATER_COUNTERS(ADD)
	}
#undef ADD
}

int sfs_log_usage(int logfd, uint8_t mode, struct sfs_usage *u)
{
	struct {
		struct sfs_log_header header;
		struct sfs_log_stats stats;
	} pages;
	const ssize_t n = pread(logfd, &pages, sizeof(pages), 0);
	const struct sfs_latency *l = &pages.header.latency;

	memset(u, 0, sizeof(*u));
	if (n != (ssize_t)sizeof(pages))
		return n < 0 ? -errno : -EINVAL;
	if (pages.header.magic != SFS_LOG_MAGIC || pages.header.format != SFS_FORMAT)
		return -EINVAL;
	u->protection = pages.header.protection;
	sfs_log_counters(&pages.header, &pages.stats, &u->counters);
	if (mode >= SFS_MODES)
		return 0;
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		u->latency[mode].sum_ns[kind] = sfs_counted(l->sum_ns[kind]);
		for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
			u->latency[mode].bucket[kind][i] = l->bucket[kind][i];
	}
	return 0;
}
