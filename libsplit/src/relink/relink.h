/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relink (SplitFS paper section 3.3): move blocks from a staging file (the donor) into a target file so that they become
 * visible there, without copying where the file system can do that. Providers differ in what they need from the kernel.
 *
 * Used by the preloaded object as well as by the tools: no libc, no allocation; errors are negative errno values.
 *
 *
 * What makes a relink safe to repeat
 *
 * A caller may die, or lose power, anywhere in or after relink() and before it has noted that the work is done. Whoever then
 * finds the record of the range calls relink() again. Three rules make that sound:
 *
 * 1. A hole in the donor means "moved already", and relink() skips it. Staged bytes have been stored, so their blocks are
 *    data; each provider that takes blocks away leaves a hole. The copy provider obeys too: another one may have been
 *    here before. (Hence the donor must not be punched, and its blocks not be reused, while a record names them.)
 * 2. No step leaves the target's old content in the donor. Exchange swaps, so it would: after a crash nobody could tell old
 *    bytes from staged ones, and repeating it would undo the relink. Therefore it is used only where the target has a hole, whose
 *    swap leaves a hole. Where the target has data the range is reflinked, or copied where that is not possible. Both
 *    read the donor and leave it intact until the target has the new content, so both may be repeated.
 * 3. The target may be longer before it has the bytes (exchange needs both ranges inside the files), never the other
 *    way round, so the record must stay valid, in the sense that the caller cares about, until relink() has returned: with a
 *    fence behind it where power loss counts. The ext4-relink, reflink and copy providers let the size grow with the bytes.
 *
 * What the caller of a repetition (recovery) has to add: resolve the records first, newest wins, and relink only bytes that no
 * newer record of the same file covers. Replaying an older record and then a newer one whose blocks were moved already
 * would leave the older bytes. And it asks relink_next_data() before it holds staged bytes against a checksum: a hole has none.
 *
 * Between a relink and the note that it is done nobody may store to the target in place: a repetition by copy or reflink would
 * bring the staged bytes back.
 */
#ifndef SFS_RELINK_H
#define SFS_RELINK_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum relink_provider {
	RELINK_NONE = 0,
	RELINK_XFS_EXCHANGE, /* XFS_IOC_EXCHANGE_RANGE, kernel 6.10 and XFS made with exchange=1 */
	RELINK_REFLINK,	     /* FICLONERANGE, then punch the donor */
	RELINK_COPY,	     /* any file system */
	RELINK_EXT4,	     /* EXT4_IOC_RELINK of our ext4 module; the numbers are part of the protocol with the agent */
	RELINK_PROVIDERS,    /* how many there are, "none" included */
};

/* "ext4-relink", "xfs-exchange", "reflink", "copy", "none" */
const char *relink_provider_name(enum relink_provider p);

/*
 * ext4-relink comes first, copy last. On XFS reflink comes before exchange where both work: it is faster (4 KiB 10 us against 17, 16 MiB 55 against 81, punch included), lets
 * the size grow together with the bytes, works between two mounts of one file system (an agent's and a pod's; exchange says
 * EXDEV there) and where the target has data. Exchange serves XFS without reflink.
 *
 * Find the best provider that works on the file system of `dirfd` by trying it on two temporary files there (unlinked before
 * they are written). Returns a provider or a negative errno value. Leaves nothing behind.
 */
int relink_probe(int dirfd);

struct relink_range {
	int donor;	    /* O_RDWR; its file offset is moved */
	int target;	    /* O_RDWR without O_APPEND; its file offset is moved: not the application's own description */
	const void *staged; /* where donor_off is mapped in this process, or NULL; saves `copy` a mapping of its own */
	bool persistent; /* DAX: the staged bytes have been flushed and fenced, no cache line is left for the kernel to write back */
	uint64_t donor_off;  /* bytes, congruent to target_off modulo 4096 */
	uint64_t target_off; /* bytes */
	uint64_t len;	     /* bytes */
	uint64_t size;	     /* the target's size must be at least this afterwards; never shrinks the target */
	bool whole;	     /* nothing of the range has been moved yet: the donor is not asked for holes */
	bool full;	     /* there is no space to copy to: whole blocks are moved, however few */
	/*
	 * Or NULL. Called once, before bytes are copied into the target: what was relinked into it before becomes durable. Were it not,
	 * a power loss might give a block that has been copied into back to a staging file, where a record takes it for what it was. 0, or a
	 * negative errno value, with which the relink ends.
	 */
	int (*settle)(void *arg);
	void *arg;
};

/* Result flags. Neither of them: some blocks may have left the donor, and some may be there. */
#define RELINK_DONOR_KEEPS   0x1 /* no block left the donor; all of them may be written again */
#define RELINK_DONOR_EMPTIED 0x2 /* the donor has a hole where the range was */

/*
 * Make [donor_off, +len) of the donor the content of [target_off, +len) of the target. Whole blocks are moved, the parts of
 * blocks at either end are copied, and so are ranges too short for moving to pay. (ext4-relink also moves the last block of the
 * range where the target ends in it; what the donor has in that block behind the range is gone then.) Bytes of the target outside
 * the range keep their content, and the target is grown to `size` when it is smaller (bytes never written read as zeros). Where `provider` does not work for these two files (other mounts,
 * flags of the files, a file system with larger blocks) the next one down does the work.
 *
 * Returns a non-negative set of RELINK_* result flags, or a negative errno value. After an error, as after a crash, the target
 * holds the new content in part, the donor holds everything that was not moved, and calling again with the same arguments finishes
 * the work. Blocks of the donor may be shared with the target then, and a store to them needs space: they are not to be used again.
 * *moved, when not NULL, says how many bytes of the range are finished, counted from its start, also after an error: the target has them,
 * and of their blocks any may have left the donor. Makes nothing durable: fsync the target for that.
 */
int relink(enum relink_provider provider, const struct relink_range *r, uint64_t *moved);

/* Does relink() copy len bytes of whole blocks, as that costs less? */
bool relink_copies(enum relink_provider provider, bool persistent, uint64_t len);

/*
 * Exchange two ranges of whole blocks inside the files' sizes, in one operation of the file system's journal. 0; an error of which
 * relink_unsupported() says that it can't be done here (-E2BIG: of ext4, too many extents for one transaction); another negative errno
 * value. After any error nothing has changed. Nothing is durable before an fsync.
 */
int relink_swap(int fd1, uint64_t off1, int fd2, uint64_t off2, uint64_t len);
/* May this file system know such a call? */
bool relink_can_swap(int fd);

/* "This kernel, file system or pair of files cannot do that": there may be another way. */
static inline bool relink_unsupported(int err)
{
	return err == -EOPNOTSUPP || err == -EINVAL || err == -ENOTTY || err == -EXDEV || err == -ENOSYS || err == -EPERM ||
	       err == -ETXTBSY || err == -E2BIG;
}

/*
 * The next run of data in [*from, end) of a donor: sets *from and *to to it and returns 1; 0: there is only a hole, which is to
 * say, all of it was moved already. A file system that cannot tell says that everything is data. Moves the file offset.
 */
int relink_next_data(int fd, uint64_t *from, uint64_t *to, uint64_t end);

#endif
