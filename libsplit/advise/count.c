/* SPDX-License-Identifier: Apache-2.0 */
/* One call after the other: would the library have served it, in each of its ways, and if not why? */
#include "core.h"

#include <errno.h>

#ifndef RWF_DSYNC
#define RWF_DSYNC 0x2
#endif
#ifndef RWF_SYNC
#define RWF_SYNC 0x4
#endif
#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

/* The process has an io_uring: nothing is staged in it any more. */
static uint32_t ring;

void sfs_stop_staging(void)
{
	__atomic_store_n(&ring, 1, __ATOMIC_RELAXED);
}

/* True where a change of the file, or a lock on it, asks for a grant. */
static bool eager(enum adv_view v)
{
	return v == ADV_EAGER_HERE || v == ADV_EAGER_PMEM;
}

static struct sfs_pays volume(enum adv_view v)
{
	const bool pmem = v == ADV_LAZY_PMEM || v == ADV_EAGER_PMEM;

	return (struct sfs_pays){.dax = pmem || adv->dax, .copies = !pmem && adv->copies};
}

static void grant(struct adv_file *f, enum adv_view v)
{
	if (f->views[v].granted)
		return;
	f->views[v].granted = true;
	ADV_ADD(adv->views[v].grants, 1);
}

void adv_changed(struct adv_file *f)
{
	f->looks = 0;
	for (enum adv_view v = 0; v < ADV_VIEWS; v++)
		if (eager(v) && f->reason == ADV_FEW)
			grant(f, v);
}

/* A lock in the ways that do not ask then keeps the file with the kernel. */
int sfs_true_to_lock(int fd, struct sfs_locking *l)
{
	struct sfs_ofd *ofd = sfs_known(fd);

	*l = (struct sfs_locking){0};
	if (!ofd)
		return 0;
	ADV_ADD(adv->locks, 1);
	adv_changed(ofd->file);
	ofd->file->locked = true;
	return 0;
}

/*
 * The size as it was, with what this process has added since. The kernel is asked seldom: after a stat a file system gives the next write a time
 * of its own (multigrain timestamps), which costs a transaction.
 */
#define LOOK_EVERY 256u
static off_t size_of(int fd, struct adv_file *f)
{
	struct stat st;

	if (f->looks++ % LOOK_EVERY == 0 && sys_fstat(fd, &st) == 0)
		f->size = st.st_size;
	return f->size;
}

static bool appends(struct adv_io *io, int fd, off_t off, int rwf)
{
	const off_t size = size_of(fd, io->ofd->file);

	if (io->ofd->flags & O_APPEND || rwf & RWF_APPEND)
		io->end = size;
	else
		io->end = off < 0 ? sys_lseek(fd, 0, SEEK_CUR) : off;
	return io->end >= size;
}

void adv_io_begin(struct adv_io *io, int fd, bool writes, off_t off, int rwf)
{
	io->ofd = sfs_known(fd);
	if (!io->ofd)
		return;
	io->op = !writes ? ADV_READ : appends(io, fd, off, rwf) ? ADV_APPEND : ADV_OVERWRITE;
	io->durable = writes && (io->ofd->flags & (O_DSYNC | O_SYNC) || rwf & (RWF_DSYNC | RWF_SYNC));
	io->odd = rwf & ~(RWF_DSYNC | RWF_SYNC | RWF_APPEND);
}

/* Does the call find a grant, or get one just now? */
static bool served(struct adv_file *f, enum adv_view v, enum adv_op op)
{
	struct adv_file_view *w = &f->views[v];

	if (w->granted)
		return true;
	if (op != ADV_READ && eager(v)) {
		grant(f, v);
		return true;
	}
	if (f->locked || !(op == ADV_READ ? sfs_reads_pay(&w->tally, volume(v)) : sfs_writes_pay(&w->tally, volume(v))))
		return false;
	grant(f, v);
	return true;
}

/* Why it got none. */
static enum adv_reason reason(const struct adv_file *f, enum adv_view v, enum adv_op op)
{
	const struct sfs_unheld *u = &f->views[v].tally;

	if (f->locked)
		return ADV_LOCKED;
	if (u->forced && sfs_forced_often(u, volume(v)))
		return ADV_FORCED;
	if (op != ADV_READ && u->writes >= SFS_WRITES_MIN && sfs_large_writes(u, volume(v)))
		return ADV_LARGE;
	return ADV_FEW;
}

static void count_view(const struct adv_io *io, enum adv_view v, uint64_t bytes, uint64_t cpu)
{
	struct adv_file *f = io->ofd->file;
	struct adv_file_view *w = &f->views[v];
	enum adv_reason why = __atomic_load_n(&ring, __ATOMIC_RELAXED) ? ADV_RING : io->odd ? ADV_FLAGS : f->reason;

	if (why == ADV_FEW && served(f, v, io->op)) {
		adv_add(&adv->views[v].served[io->op][adv_size(bytes)], bytes, cpu);
		w->staged += io->op == ADV_READ ? 0 : bytes;
		return;
	}
	if (why == ADV_FEW)
		why = reason(f, v, io->op);
	adv_add(&adv->views[v].kernel[why][io->op], bytes, cpu);
	if (io->op == ADV_READ) {
		w->tally.reads++;
		w->tally.read += bytes;
	} else {
		w->tally.writes++;
		w->tally.written += bytes;
	}
}

/*
 * What a call of this kind takes when the thread runs: at most so many times the mean of those before. `usual` are all calls of the process,
 * whichever way they would go.
 */
#define TIMES_MEAN 16u
#define FIRST	   8u
static uint64_t running(enum adv_op op, uint64_t bytes, uint64_t took)
{
	static struct adv_cell usual[ADV_OPS][ADV_SIZES];
	struct adv_cell *c = &usual[op][adv_size(bytes)];
	const uint64_t calls = __atomic_load_n(&c->calls, __ATOMIC_RELAXED);
	const uint64_t mean = calls ? __atomic_load_n(&c->cpu, __ATOMIC_RELAXED) / calls : took;

	if (calls >= FIRST && took > TIMES_MEAN * mean)
		took = mean;
	adv_add(c, bytes, took);
	return took;
}

void adv_io_end(const struct adv_io *io, int fd, ssize_t r, uint64_t took)
{
	const uint64_t bytes = r > 0 ? (uint64_t)r : 0;
	uint64_t cpu;

	if (!io->ofd || sfs_known(fd) != io->ofd || r < 0)
		return;
	cpu = running(io->op, bytes, took);
	for (enum adv_view v = 0; v < ADV_VIEWS; v++)
		count_view(io, v, bytes, cpu);
	if (io->ofd->flags & O_DIRECT)
		adv_add(&adv->direct, bytes, cpu);
	if (io->op == ADV_READ)
		return;
	if (io->end + r > io->ofd->file->size)
		io->ofd->file->size = io->end + r;
	if (io->durable)
		adv_add(&adv->synced, bytes, cpu);
	else
		io->ofd->file->unsynced++;
}

void adv_forced(struct adv_file *f, uint64_t cpu, uint64_t wall)
{
	const enum adv_gap gap = f->unsynced == 0	  ? ADV_GAP_0
				 : f->unsynced == 1	  ? ADV_GAP_1
				 : f->unsynced < ADV_MANY ? ADV_GAP_FEW
							  : ADV_GAP_MANY;

	adv_add(&adv->fsyncs[gap], 0, cpu);
	ADV_ADD(adv->fsyncs[gap].wall, wall);
	f->unsynced = 0;
	for (enum adv_view v = 0; v < ADV_VIEWS; v++) {
		struct adv_file_view *w = &f->views[v];

		if (w->granted && f->reason == ADV_FEW) {
			adv_add(&adv->views[v].fsync, w->staged, cpu);
			ADV_ADD(adv->views[v].fsync.wall, wall);
		} else {
			w->tally.forced++;
		}
		w->staged = 0;
	}
}

void adv_closed(struct adv_file *f)
{
	for (enum adv_view v = 0; v < ADV_VIEWS; v++) {
		if (f->views[v].staged)
			adv_add(&adv->views[v].close, f->views[v].staged, 0);
		f->views[v] = (struct adv_file_view){0};
	}
	f->locked = false;
}
