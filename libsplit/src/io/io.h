/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: reads, writes, and relinking what was written. */
#ifndef SFS_IO_H
#define SFS_IO_H

#include "base/iov.h"
#include "files/change.h"
#include "files/inode.h"

/* The inode is about to get its first record since the last one was retired. inode.lock held. */
void sfs_stage_live(struct sfs_inode *in);
/* The inode's records are retired: it lets go of its staging space. inode.lock held. */
void sfs_stage_retired(struct sfs_inode *in);
/* sfs_grow_end() where there is no record to look at, and nothing to count. */
void sfs_grow_forget(struct sfs_inode *in);
/* Its unused slots stay empty. Before a DONE record, which retires what has a lower slot, and when the log is cleared. */
static inline void sfs_log_drop_slots(struct sfs_inode *in)
{
	sfs_slots_drop(&in->slots);
	sfs_grow_end(in);
}
/*
 * Relink everything and clear the log. No inode lock held. Without `wait` it gives up with -EBUSY where it would have to wait.
 */
int sfs_checkpoint(struct sfs_volume *vol, bool wait);

/* A record of n bytes at `off` of the file, staged from block b on: everything but data_crc, the group, and the size. */
static inline struct sfs_record sfs_record_write(const struct sfs_inode *in, uint64_t off, size_t n, sfs_block b, uint8_t flags)
{
	return (struct sfs_record){
		.type = SFS_REC_WRITE,
		.flags = flags,
		.ino = in->ino,
		.gen = in->gen,
		.off = off,
		.len = (uint32_t)n,
		.stage_file = in->vol->pool.chunks[(b >> 32) - 1].id,
		.stage_off = (uint64_t)(uint32_t)b * SFS_BLOCK + off % SFS_BLOCK,
	};
}

/* flush.c; inode.lock held */
enum sfs_flush {
	/* Relinked: the kernel and everybody else see it. On persistent memory the records go on counting until a journal commit. */
	SFS_PUBLISH,
	/* And no record of it counts any more, also after a power loss: before the kernel or another process changes the file. */
	SFS_RETIRE,
	/* And fsync(2). */
	SFS_DURABLE,
};
/* -EAGAIN: relinked, but a checkpoint is due. */
int sfs_flush(struct sfs_inode *in, enum sfs_flush how);
/*
 * What is staged is nobody's: the file is gone, and in sync and strict on persistent memory that is durable. Nothing is relinked, and its
 * records are retired. -EAGAIN: they stay for a checkpoint, as the log is full.
 */
int sfs_flush_nothing(struct sfs_inode *in);
/* RETIRE, then no higher than that delegation. Lock held exclusively; -EAGAIN: again, after a checkpoint. */
int sfs_step_down(struct sfs_inode *in, unsigned to);
/* Takes and releases the lock, and checkpoints when that is due. */
int sfs_flush_unlocked(struct sfs_inode *in, enum sfs_flush how);
/* All files of the volume; the first error, after all have been tried. */
int sfs_flush_all(struct sfs_volume *vol, enum sfs_flush how);
/* posix on persistent memory: a COMMIT record, at this slot. */
void sfs_commit_at(struct sfs_inode *in, uint32_t slot);
/* posix on persistent memory, before a COMMIT record of the inode. */
int sfs_commit_base(struct sfs_inode *in);
/* What fsync(2) promises, visible to everybody. -EAGAIN: a checkpoint makes it so. */
int sfs_flush_fsync(struct sfs_ofd *ofd, int fd, bool data_only);

/* read.c, write.c, append.c: bytes */
#define SFS_STORE_MAX 512u /* shorter copies are not worth non-temporal stores */
#define SFS_PREFETCH  6u   /* small appends ahead */
/* Longer ones take no short way: what that spares is nothing beside their copy. */
#define SFS_LONG (16u << 10)

/* calls/kernel_view.c: the kernel's view of the file is made true, or has changed. */
int sfs_make_true(int fd, bool forever);
int sfs_true_to_look(int fd);
void sfs_changed(int fd);
/*
 * The file's name or an attribute is about to change, or has: what is staged is relinked. It may have been the last name, so an inode that is
 * not open does not keep the blocks for long.
 */
int sfs_inode_publish_last(struct sfs_inode *in);

/* append.c: the fast way of an append at the file offset. False: nothing was done. */
bool sfs_append(struct sfs_ofd *ofd, int fd, const void *buf, size_t n);
/* store.c: the fast way of a write over bytes that the file has. False: it is to be made as if nothing had been done. */
bool sfs_store(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off);

/* read.c, write.c */
ssize_t sfs_readv(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
/* write.c: n bytes at p, which nobody stores to; `blocks`: in a buffer whose whole blocks become the file's. */
ssize_t sfs_write_buffer(struct sfs_ofd *ofd, int fd, const void *p, size_t n, off_t off, bool blocks);
/* After a write: what the description or flags (RWF_*) ask for. */
int sfs_write_durable(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, int flags);
/* If the file was ours for one write only. What can't be relinked now is when the service thread answers the agent's REVOKE. */
void sfs_write_give_back(struct sfs_inode *in);
/* patch.c: see calls/calls.h */
ssize_t sfs_patch(int fd, void *buf, size_t len, off_t off);
int sfs_pool_create(int dirfd, size_t size);
int sfs_pool_destroy(int pool);
int sfs_alloc(int pool, off_t off, size_t len, void **p);
int sfs_free(void *buf);
/* together.c */
int sfs_write_atomic(const struct sfs_range *ranges, int n);
/* swap.c */
int sfs_swap(int fd1, off_t off1, int fd2, off_t off2, size_t len);
/* peek.c */
int sfs_peek(int fd, off_t off, size_t len, const void **p, size_t *got);
int sfs_unpeek(const void *p);
/* base.c: everything that a call on the file's bytes needs. inode.lock held by sfs_inode_lock(). */
int sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd);
/* The lock and the mark go: sfs_inode_lock() took it where `alone`, sfs_inode_take() otherwise. */
static inline void sfs_io_leave(struct sfs_inode *in, bool alone, uint64_t *op)
{
	if (alone)
		sfs_inode_unlock(in);
	else
		sfs_inode_drop(in);
	sfs_op_end(op);
}
/* Is everything there that sfs_io_prepare() provides, without asking anybody? */
static inline bool sfs_io_prepared(const struct sfs_inode *in)
{
	return sfs_inode_served(in) && in->window.dense_known && sfs_window_looked(&in->window, in->ksize);
}

/* base.c */
#define SFS_COLD_MAX (128ull << 10)
/* Do faults for the pages pay, in a read of n bytes? Of a small file when it has been read once. */
static inline bool sfs_read_warm(const struct sfs_inode *in, size_t n)
{
	return in->ksize > SFS_COLD_MAX ? !sfs_window_cold(&in->window, n, in->window.cold) : in->window.cold >= in->ksize;
}
/*
 * The window or the file, not what is staged: [off, off + n) as the kernel has it, zeros beyond its end. n; or so many bytes before the first
 * that can't be read, or stored to memory of the program; or an error where there are none.
 */
ssize_t sfs_read_base(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n);
/* The same, always by pread: all of it (0), or an error. */
int sfs_read_kernel(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n);

#endif
