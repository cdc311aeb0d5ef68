/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One staged write, from the search for space to the block table: place, copy, then, in one section of inode.lock, slots, carry, records,
 * enter. Only the copy needs no lock.
 *
 * Nothing staged is visible to anybody before its records are stored, and nothing is stored before there is room for the records.
 */
#ifndef SFS_STAGED_H
#define SFS_STAGED_H

#include "base/iov.h"
#include "io/io.h"

#define SFS_FILE_MAX	(1ull << 43) /* bytes: larger files are the kernel's */
#define SFS_EXTENTS_MAX 80	     /* of one atomic operation: at least 1 GiB with the default staging files */

struct sfs_extent {
	uint64_t off; /* in the file */
	uint64_t len; /* bytes of this operation */
	sfs_block b;  /* where block off / SFS_BLOCK is staged; the following blocks follow */
	bool there;   /* the bytes are, and durable with the next fence: whole blocks of a buffer */
};

struct sfs_staged {
	uint64_t pos;
	size_t n;      /* bytes, as many as the extents have */
	uint32_t slot; /* the records', one for each extent */
	bool fenced;   /* durable when it returns: the modes sync and strict */
	bool crc;      /* the record says what the bytes are, so they need no fence before it */
	uint32_t data_crc;
	/* Blocks that were taken for it in a row, last, when staging.number was this. */
	uint32_t number, taken;
	sfs_block first_taken;
	int extents;
	struct sfs_extent ext[SFS_EXTENTS_MAX];
};

/* Do bytes up to `end` go over blocks that the file has, as far as is known? */
static inline bool sfs_staged_over(const struct sfs_inode *in, uint64_t end)
{
	return in->window.dense && end <= in->ksize;
}
/*
 * Staging space for [pos, pos + n), or with `part` and where that takes more than SFS_EXTENTS_MAX extents for less. 0; -ENOBUFS: lease a staging
 * file; -ENOSPC; -E2BIG: one operation has no more than a part of it. What was taken is free again when the inode is retired.
 */
int sfs_staged_place(struct sfs_inode *in, uint64_t pos, size_t n, bool part, struct sfs_staged *st);
/* It is not made there, and nobody copies to it any more: at once free again is what nobody has taken anything behind. */
void sfs_staged_unplace(struct sfs_inode *in, struct sfs_staged *st);
/*
 * How many of its first bytes go to a block that others may relink or write to meanwhile: they are stored with inode.lock held.
 */
size_t sfs_staged_head(const struct sfs_inode *in, const struct sfs_staged *st);
/* Is the place still what it was when it was found, for a write that begins at st->pos? */
bool sfs_staged_holds(const struct sfs_inode *in, const struct sfs_staged *st, size_t head);
/* It is to begin elsewhere, at the same place of a block. */
void sfs_staged_move(struct sfs_staged *st, uint64_t pos);
/* Slots for its records and `more` others behind them. -EAGAIN: the log is full. */
int sfs_staged_slots(struct sfs_inode *in, struct sfs_staged *st, uint32_t more);
/* What a block holds now, bytes [from, to) of it, into its new place. */
int sfs_staged_keep(struct sfs_inode *in, uint64_t blk, uint32_t from, uint32_t to, uint8_t *dst);
/*
 * What the blocks hold around the new bytes, so that an entry always stands for a whole block. On an error the slots stay empty, which
 * recovery takes for a call that did not return.
 */
int sfs_staged_carry(struct sfs_inode *in, const struct sfs_staged *st);
/* The bytes from the cursor on, but for `head` of them that are put into `at`; durable when the next fence is, or behind one already. */
void sfs_staged_copy(struct sfs_volume *vol, struct sfs_staged *st, struct sfs_cursor *c, uint8_t *at, size_t head);
/* Those bytes to their place. */
void sfs_staged_copy_head(struct sfs_volume *vol, const struct sfs_staged *st, const uint8_t *from, size_t head);
/* The records, with which the operation counts; the file's size is `size` then. Not fenced. Returns the last one's CRC. */
uint32_t sfs_staged_records(const struct sfs_inode *in, const struct sfs_staged *st, uint64_t size, bool grows);
/* Into the block table, and into what is known of the block staged last. */
void sfs_staged_enter(struct sfs_inode *in, const struct sfs_staged *st);

/* Bytes of a caller to dst. durable: the next fence is to make them so. Without, short pieces stay in the cache. */
void sfs_copy_in(uint8_t *dst, struct sfs_cursor *c, size_t n, bool durable);

/* Is a write that ends there the kernel's, which knows the limit and what to do about it? */
static inline bool sfs_too_far(uint64_t end)
{
	return end > sfs.fsize_limit || end > SFS_FILE_MAX;
}

#define SFS_SPAN_MAX (1ull << 18) /* blocks: 1 GiB */
/* Entries far apart would make the block table long to walk. */
static inline bool sfs_far_apart(const struct sfs_inode *in, uint64_t pos)
{
	return in->staging.count > 0 &&
	       (pos / SFS_BLOCK + SFS_SPAN_MAX < in->staging.first || pos / SFS_BLOCK > in->staging.last + SFS_SPAN_MAX);
}

#endif
