/* SPDX-License-Identifier: Apache-2.0 */
#include "record/log.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/protect.h"
#include "base/sys.h"
#include "pm/map.h"
#include "pm/pm.h"

#define BATCH_MAX 16u

static struct sfs_log_stats no_counters; /* before there is a log */

void sfs_log_none(struct sfs_log *log)
{
	log->fd = -1;
	log->map = NULL;
	log->records = NULL;
	log->counters = &no_counters;
}

static bool fits(const struct sfs_log_header *h, uint64_t bytes)
{
	return h->magic == SFS_LOG_MAGIC && h->format == SFS_FORMAT && h->slots > SFS_LOG_HEADROOM &&
	       SFS_LOG_RECORDS_OFFSET + (uint64_t)h->slots * sizeof(struct sfs_record) <= bytes;
}

/* All but the counters, which harm nobody. */
static int protect(void *map, size_t len)
{
	const int r = sfs_protect(map, SFS_BLOCK, PROT_READ | PROT_WRITE);

	return r < 0 ? r
		     : sfs_protect((uint8_t *)map + SFS_LOG_RECORDS_OFFSET, len - SFS_LOG_RECORDS_OFFSET,
				   PROT_READ | PROT_WRITE);
}

int sfs_log_map(struct sfs_log *log, int fd, bool dax, enum sfs_mode mode)
{
	struct sfs_log_header *h;
	uint32_t slots_max;
	struct stat st;
	size_t len;
	int r = sys_fstat(fd, &st);

	if (r < 0)
		return r;
	if (sys_pread(fd, &slots_max, sizeof(slots_max), offsetof(struct sfs_log_header, slots_max)) != sizeof(slots_max))
		return -EPROTO;
	/* Nothing is stored behind the end before the file is longer. */
	len = SFS_LOG_RECORDS_OFFSET + (uint64_t)slots_max * sizeof(struct sfs_record);
	len = len > (uint64_t)st.st_size ? len : (size_t)st.st_size;
	if (st.st_size < (off_t)(SFS_LOG_RECORDS_OFFSET + (SFS_LOG_HEADROOM + 1) * sizeof(struct sfs_record)))
		return -EPROTO;
	h = sfs_map_file(dax, len, PROT_READ | PROT_WRITE, fd);
	if (sys_is_err(h))
		return (int)(long)h;
	if (!fits(h, (uint64_t)st.st_size)) {
		sys_munmap(h, len);
		return -EPROTO;
	}
	r = protect(h, len);
	if (r < 0) {
		sys_munmap(h, len);
		return r;
	}
	/* A child of fork gets a log of its own. */
	sys_madvise(h, len, MADV_DONTFORK);
	/* Read ahead would fill pages with zeros that nobody stores to, and make recovery look at them. */
	sys_madvise(h, len, MADV_RANDOM);
	log->map = (uint8_t *)h;
	log->len = len;
	log->fd = fd;
	log->records = (struct sfs_record *)(log->map + SFS_LOG_RECORDS_OFFSET);
	log->counters = (struct sfs_log_stats *)(log->map + SFS_BLOCK);
	log->seed = h->seed;
	log->slots = h->slots;
	log->slots_max = (uint32_t)((len - SFS_LOG_RECORDS_OFFSET) / sizeof(struct sfs_record));
	log->epoch = h->epoch;
	log->cached = !dax && mode == SFS_POSIX;
	store_release(&log->tail, 0);
	return 0;
}

int sfs_log_reserve(struct sfs_log *log, uint32_t n, bool last_resort, uint32_t *slot)
{
	/* The last slot is the checkpoint's. */
	const uint32_t limit = __atomic_load_n(&log->slots, __ATOMIC_RELAXED) - (last_resort ? 1 : SFS_LOG_HEADROOM);
	uint32_t tail = __atomic_load_n(&log->tail, __ATOMIC_RELAXED);

	do {
		if (tail + n > limit)
			return -EAGAIN;
	} while (!__atomic_compare_exchange_n(&log->tail, &tail, tail + n, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	*slot = tail;
	return 0;
}

int sfs_log_slots(struct sfs_log *log, struct sfs_slots *own, uint32_t n, uint32_t *slot)
{
	int r;

	if (n > own->end - own->next) {
		uint32_t want = own->batch * 2 > BATCH_MAX ? BATCH_MAX : own->batch * 2;

		if (want < n)
			want = n;
		r = sfs_log_reserve(log, want, false, &own->next);
		if (r < 0 && want > n) {
			want = n;
			r = sfs_log_reserve(log, want, false, &own->next);
		}
		if (r < 0) {
			sfs_slots_drop(own);
			return r;
		}
		own->end = own->next + want;
		own->batch = want < BATCH_MAX ? want : BATCH_MAX;
	}
	*slot = own->next;
	own->next += n;
	return 0;
}

uint32_t sfs_log_store(struct sfs_log *log, uint32_t slot, uint64_t word[8])
{
	const uint8_t flags = (uint8_t)(word[0] >> 40);
	const uint32_t crc = sfs_record_seal(word, log->seed, log->epoch, slot);

	/* What grows is stored to again by the next append, and written back when it has ended. */
	if ((flags & SFS_REC_GROWS) || log->cached)
		pm_store(&log->records[slot], word, sizeof(struct sfs_record));
	else
		pm_copy_line(&log->records[slot], word);
	sfs_counters_here(log)->records++;
	return crc;
}

/* A record that counts, also after a power loss, when this returns. */
static void write_fenced(struct sfs_log *log, uint32_t slot, const struct sfs_record *rec)
{
	sfs_log_write(log, slot, *rec);
	pm_fence();
}

void sfs_log_commit(struct sfs_log *log, uint32_t slot, uint64_t ino, uint32_t gen)
{
	struct sfs_record rec = {.type = SFS_REC_COMMIT, .ino = ino, .gen = gen};

	pm_fence();
	sfs_log_write(log, slot, rec);
	if (ino)
		pm_fence();
}

void sfs_log_done(struct sfs_log *log, uint32_t slot, uint64_t ino, uint32_t gen, bool durable)
{
	struct sfs_record rec = {.type = SFS_REC_DONE, .flags = durable ? SFS_REC_DURABLE : 0, .ino = ino, .gen = gen};

	write_fenced(log, slot, &rec);
}

void sfs_log_cut(struct sfs_log *log, uint32_t slot, uint64_t ino, uint32_t gen, uint64_t size)
{
	struct sfs_record rec = {.type = SFS_REC_TRUNCATE, .flags = SFS_REC_DURABLE, .ino = ino, .gen = gen, .size = size};

	write_fenced(log, slot, &rec);
}

bool sfs_log_grown(struct sfs_log *log)
{
	uint32_t *slots = &((struct sfs_log_header *)log->map)->slots;
	const uint32_t now = load_acquire(slots);

	/* One that is closed is full at the old length. */
	if (now <= log->slots || now > log->slots_max || __atomic_load_n(&log->tail, __ATOMIC_RELAXED) >= log->slots)
		return false;
	/* A record counts after a power loss only where the log was so long. */
	pm_flush(slots, sizeof(*slots));
	pm_fence();
	store_release(&log->slots, now);
	return true;
}

void sfs_log_close(struct sfs_log *log)
{
	const uint32_t tail = __atomic_exchange_n(&log->tail, log->slots, __ATOMIC_ACQ_REL);

	if (tail < log->slots)
		log->closed_at = tail;
}

void sfs_log_clear(struct sfs_log *log)
{
	struct sfs_log_header *h = (struct sfs_log_header *)log->map;

	pm_store64(&h->epoch, log->epoch + 1);
	pm_fence();
}

void sfs_log_reopen(struct sfs_log *log)
{
	__atomic_store_n(&log->epoch, log->epoch + 1, __ATOMIC_RELEASE);
	store_release(&log->tail, 0);
	sfs_counters_here(log)->checkpoints++;
}
