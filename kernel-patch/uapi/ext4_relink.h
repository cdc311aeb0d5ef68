/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) */
/*
 * EXT4_IOC_RELINK: move blocks from one file to another, without copying.
 *
 * The ioctl is made on the target's descriptor (open for writing); donor_fd is
 * a descriptor of the donor (open for reading and writing).  What the donor
 * holds in [donor_offset, donor_offset + length) becomes the target's content
 * of [target_offset, target_offset + length); what the target held there is
 * freed; the donor has a hole there afterwards and keeps its size.  With
 * EXT4_RELINK_EXCHANGE the donor gets what the target held, and nothing is
 * freed.
 *
 * One call is one transaction: after a crash all of it has happened or nothing.
 * A range that doesn't fit a transaction is refused (E2BIG, nothing changed);
 * with EXT4_RELINK_PARTIAL the longest beginning that was found to fit is moved
 * instead, "moved" says how long it is, and the caller continues behind it.
 * After any error nothing has changed, except that the rest of the donor's last
 * block may be zero if length is not a multiple of the block size.
 *
 * ext4_relink.md describes the call in full.
 */
#ifndef _UAPI_LINUX_EXT4_RELINK_H
#define _UAPI_LINUX_EXT4_RELINK_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXT4_RELINK_VERSION		1

/*
 * Change nothing; only say which version and flags there are.  Must be the only
 * flag; version and everything else may have any value.  A file system without
 * the call answers ENOTTY.
 */
#define EXT4_RELINK_QUERY		(1U << 0)
/* Leave the target's size alone; new_size must be 0. */
#define EXT4_RELINK_KEEP_SIZE		(1U << 1)
/*
 * Where the donor has a hole keep what the target has, instead of leaving a
 * hole there too.  Makes the same call harmless the second time.
 */
#define EXT4_RELINK_SKIP_HOLES		(1U << 2)
/* Move the beginning of a range that is too much for one transaction. */
#define EXT4_RELINK_PARTIAL		(1U << 3)
/* Return when the transaction has been committed to the journal. */
#define EXT4_RELINK_SYNC		(1U << 4)
/*
 * Stores through mappings of the donor have been made persistent by those who
 * made them (MAP_SYNC and cache flushes): don't write them back.  Where the
 * range is part of 2 MiB that are mapped by one entry, this is said of all of
 * them.  DAX only; ignored for files in the page cache.
 */
#define EXT4_RELINK_DATA_PERSISTENT	(1U << 5)
/*
 * The donor gets the blocks that the target had, in place of those it gives.
 * Where the target had a hole or its end, the donor has a hole.
 */
#define EXT4_RELINK_EXCHANGE		(1U << 6)

#define EXT4_RELINK_FLAGS		((1U << 7) - 1)

struct ext4_relink {
	__u32	version;	/* in: EXT4_RELINK_VERSION; out: the kernel's */
	__u32	flags;		/* in: EXT4_RELINK_* */
	__s32	donor_fd;	/* in */
	__u32	known_flags;	/* out: all flags the kernel knows */
	__u64	donor_offset;	/* in: multiple of the block size */
	__u64	target_offset;	/* in: multiple of the block size */
	/*
	 * in: a multiple of the block size, or target_offset + length is the
	 * target's size afterwards; the rest of that block is zeroed
	 */
	__u64	length;
	/*
	 * in: the target's size afterwards, unless it is larger already (the
	 * call never shrinks a file); target_offset + length must not lie
	 * beyond the size afterwards
	 */
	__u64	new_size;
	__u64	moved;		/* out: bytes of length that are done */
	__u32	extents_moved;	/* out: extents the target received */
	__u32	extents_freed;	/* out: extents the target lost (with EXCHANGE:
				 * that the donor received)
				 */
	__u64	reserved[2];	/* in: 0 */
};

#define EXT4_IOC_RELINK		_IOWR('f', 120, struct ext4_relink)

#endif /* _UAPI_LINUX_EXT4_RELINK_H */
