/* SPDX-License-Identifier: Apache-2.0 */
/* Bugs of logic, planted by standing between two source files of the library (the linker's --wrap). */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "io/io.h"
#include "crash/agent.h"
#include "crash/record.h"
#include "recover/cover.h"
#include "recover/recover.h"
#include "recover/replay.h"
#include "recover/scan.h"

/* The compiler is to notice when one of them changes. */
extern __typeof__(sfs_replay_check) __real_sfs_replay_check, __wrap_sfs_replay_check;
extern __typeof__(sfs_replay_copy) __real_sfs_replay_copy, __wrap_sfs_replay_copy;
extern __typeof__(sfs_cover_gaps) __real_sfs_cover_gaps, __wrap_sfs_cover_gaps;
extern __typeof__(sfs_scan) __real_sfs_scan, __wrap_sfs_scan;
extern __typeof__(sfs_recover_log) __real_sfs_recover_log, __wrap_sfs_recover_log;
extern __typeof__(sfs_staging_alloc) __real_sfs_staging_alloc, __wrap_sfs_staging_alloc;
extern __typeof__(sfs_log_store) __real_sfs_log_store, __wrap_sfs_log_store;
extern __typeof__(sfs_io_prepare) __real_sfs_io_prepare, __wrap_sfs_io_prepare;
extern __typeof__(crc32c) __real_crc32c, __wrap_crc32c;

static bool is(enum mutant_kind kind)
{
	return mutant.kind == kind;
}

/* Records are believed without their checksum (bytes 4.. of a record, by recovery alone). */
uint32_t __real_crc32c(uint32_t crc, const void *p, size_t n);
uint32_t __wrap_crc32c(uint32_t crc, const void *p, size_t n);
uint32_t __wrap_crc32c(uint32_t crc, const void *p, size_t n)
{
	uint32_t found;

	if (is(MUT_RECORD_CRC) && kern_on && kern.on_touch && (n == 60 || n == 52)) {
		memcpy(&found, (const char *)p - 4, sizeof(found));
		return found;
	}
	return __real_crc32c(crc, p, n);
}

int __wrap_sfs_replay_check(struct sfs_chunks *c, const struct sfs_chunk_ref *ref, uint64_t off, uint32_t len, uint32_t crc,
			    enum sfs_data *state)
{
	const int r = __real_sfs_replay_check(c, ref, off, len, crc, state);

	if (is(MUT_DATA_CRC) && r == 0 && *state == SFS_DATA_TORN)
		*state = SFS_DATA_WHOLE;
	return r;
}

int __real_sfs_replay_copy(const struct sfs_chunk_ref *c, uint64_t from, int target, uint64_t to, uint64_t len, void *buf,
			   uint64_t *bytes);
int __wrap_sfs_replay_copy(const struct sfs_chunk_ref *c, uint64_t from, int target, uint64_t to, uint64_t len, void *buf,
			   uint64_t *bytes);
/* Holes of a staging file taken for zeros. */
int __wrap_sfs_replay_copy(const struct sfs_chunk_ref *c, uint64_t from, int target, uint64_t to, uint64_t len, void *buf,
			   uint64_t *bytes)
{
	if (!is(MUT_HOLES_COPIED))
		return __real_sfs_replay_copy(c, from, target, to, len, buf, bytes);
	for (uint64_t done = 0, n; done < len; done += n) {
		n = len - done < 4096 ? len - done : 4096;
		kern_pread(kern_fd_ino(c->fd), buf, n, (off_t)(from + done));
		kern_pwrite(kern_fd_ino(target), buf, n, (off_t)(to + done));
	}
	return 0;
}

int __real_sfs_cover_gaps(const struct sfs_cover *c, uint64_t from, uint64_t to,
			  int (*gap)(void *ctx, uint64_t from, uint64_t to), void *ctx);
int __wrap_sfs_cover_gaps(const struct sfs_cover *c, uint64_t from, uint64_t to,
			  int (*gap)(void *ctx, uint64_t from, uint64_t to), void *ctx);
int __wrap_sfs_cover_gaps(const struct sfs_cover *c, uint64_t from, uint64_t to,
			  int (*gap)(void *ctx, uint64_t from, uint64_t to), void *ctx)
{
	return is(MUT_OLDEST_WINS) ? gap(ctx, from, to) : __real_sfs_cover_gaps(c, from, to, gap, ctx);
}

/* ---- what recovery makes of records */

static struct {
	int (*done)(void *ctx, const struct sfs_record *rec);
	int (*group)(void *ctx, const struct sfs_record *rec, unsigned n);
} real;

static int done(void *ctx, const struct sfs_record *rec)
{
	const bool commit = rec->type == SFS_REC_COMMIT;

	if (is(commit ? MUT_COMMIT_IGNORED : MUT_DONE_IGNORED) ||
	    (is(MUT_DONE_FORGOTTEN) && agent_boot > 1 && !commit && !(rec->flags & SFS_REC_DURABLE)))
		return 0;
	return real.done(ctx, rec);
}

static int group(void *ctx, const struct sfs_record *rec, unsigned n)
{
	struct sfs_record r[SFS_GROUP_MAX + 1];

	memcpy(r, rec, n * sizeof(*r));
	for (unsigned i = 0; i < n; i++)
		r[i].flags |= SFS_REC_DURABLE;
	return real.group(ctx, r, n);
}

int __real_sfs_scan(struct sfs_scan *s);
int __wrap_sfs_scan(struct sfs_scan *s);
int __wrap_sfs_scan(struct sfs_scan *s)
{
	int r;

	real.done = s->done;
	real.group = s->group;
	if (is(MUT_DONE_IGNORED) || is(MUT_DONE_FORGOTTEN) || is(MUT_COMMIT_IGNORED))
		s->done = done;
	if (is(MUT_WRITE_TRUSTED))
		s->group = group;
	r = __real_sfs_scan(s);
	s->done = real.done;
	s->group = real.group;
	return r;
}

int __real_sfs_recover_log(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease,
			   const struct sfs_recover_how *how, struct sfs_recovery *sum, struct sfs_why *why);
int __wrap_sfs_recover_log(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease,
			   const struct sfs_recover_how *how, struct sfs_recovery *sum, struct sfs_why *why);
int __wrap_sfs_recover_log(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease,
			   const struct sfs_recover_how *how, struct sfs_recovery *sum, struct sfs_why *why)
{
	return is(MUT_NO_REPLAY) ? 0 : __real_sfs_recover_log(r, id, lease, how, sum, why);
}

/* ---- what the library does */

sfs_block __real_sfs_staging_alloc(struct sfs_pool *pool, struct sfs_staging *st, uint64_t at, uint32_t *n, int *err);
sfs_block __wrap_sfs_staging_alloc(struct sfs_pool *pool, struct sfs_staging *st, uint64_t at, uint32_t *n, int *err);
sfs_block __wrap_sfs_staging_alloc(struct sfs_pool *pool, struct sfs_staging *st, uint64_t at, uint32_t *n, int *err)
{
	const sfs_block b = __real_sfs_staging_alloc(pool, st, at, n, err);

	if (is(MUT_STAGING_REUSED) && b)
		st->region_next -= *n;
	return b;
}

uint32_t __real_sfs_log_store(struct sfs_log *log, uint32_t slot, uint64_t word[8]);
uint32_t __wrap_sfs_log_store(struct sfs_log *log, uint32_t slot, uint64_t word[8]);
uint32_t __wrap_sfs_log_store(struct sfs_log *log, uint32_t slot, uint64_t word[8])
{
	struct sfs_record rec;

	memcpy(&rec, word, sizeof(rec));
	if (is(MUT_NO_DATA_CRC) && rec.type == SFS_REC_WRITE)
		rec.flags &= (uint8_t)~SFS_REC_DATA_CRC;
	if (is(MUT_PARTS_COUNT))
		rec.group_pos = rec.group_left = 0;
	memcpy(word, &rec, sizeof(rec));
	return __real_sfs_log_store(log, is(MUT_SLOT_REUSED) ? slot & ~1u : slot, word);
}

int __real_sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd);
int __wrap_sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd);
int __wrap_sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd)
{
	if (is(MUT_IN_PLACE_EARLY))
		in->counted.relinked = RELINKED_NOTHING;
	return __real_sfs_io_prepare(ofd, in, fd);
}
