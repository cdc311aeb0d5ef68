/* SPDX-License-Identifier: Apache-2.0 */
#include "files/unheld.h"

#include <errno.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/iov.h"
#include "files/kernel_offset.h"
#include "files/pays.h"
#include "pm/pm.h"

#ifndef RWF_DSYNC
#define RWF_DSYNC 0x2
#endif
#define ASKING_TRIES 100000
#define READ_TRIES   64u

bool sfs_kernel_may_write(const struct sfs_volume *vol)
{
	return vol->mode == SFS_POSIX || (vol->mode == SFS_SYNC && !vol->dax);
}

bool sfs_overwrites(int fd, off_t at, size_t n)
{
	struct stat st;

	return at >= 0 && (sys_fstat(fd, &st) < 0 || at + (off_t)n <= st.st_size);
}

/* For sfs_overwrites(). off: -1 for the file offset. A vector may be anywhere, so its first byte stands for it. */
static int overwrite_flags(int fd, off_t off)
{
	const bool over = sfs_overwrites(fd, off < 0 ? sys_lseek(fd, 0, SEEK_CUR) : off, 1);

	return over && !(sys_fcntl(fd, F_GETFL, 0) & O_APPEND) ? RWF_DSYNC : 0;
}

/* ---- reads ---- */

int sfs_unheld_look(struct sfs_inode *in)
{
	return sfs_ask_first(in->vol, &in->grant, in->ino);
}

/* It changes with each grant of the file. */
static uint32_t grants(const struct sfs_inode *in)
{
	return sfs_owners_number(load_acquire(&in->vol->owners[sfs_owners_index(in->ino)]));
}

/* off: -1 for the file offset. */
static ssize_t kernel_reads(int fd, struct sfs_vector v, off_t off, int flags)
{
	if (!v.one || flags)
		return sys_preadv2(fd, v.iov, v.cnt, off, flags);
	return off < 0 ? sys_read(fd, v.iov->iov_base, v.iov->iov_len) : sys_pread(fd, v.iov->iov_base, v.iov->iov_len, off);
}

ssize_t sfs_kernel_write(const struct sfs_volume *vol, int fd, struct sfs_vector v, off_t off, int flags)
{
	ssize_t r;

	if (vol->dax)
		flags |= overwrite_flags(fd, off);
	if (!v.one || flags)
		r = sys_pwritev2(fd, v.iov, v.cnt, off, flags);
	else
		r = off < 0 ? sys_write(fd, v.iov->iov_base, v.iov->iov_len)
			    : sys_pwrite(fd, v.iov->iov_base, v.iov->iov_len, off);
	/* To persistent memory the kernel stores past the caches, and does not wait. */
	if (vol->dax)
		pm_fence();
	return r;
}

/* The same bytes once more, `got` of them at `at`. Fewer are there when the file has been cut off; then the offset stands behind those. */
static ssize_t again(int fd, struct sfs_vector v, off_t at, ssize_t got, bool at_offset)
{
	const ssize_t r = kernel_reads(fd, v, at, 0);

	if (at_offset && r >= 0 && r < got)
		sys_lseek(fd, at + r, SEEK_SET);
	return r > got ? got : r;
}

/* Another thread may be asking for a grant, and may have got it before this process knows. */
static bool unheld_still(const struct sfs_inode *in)
{
	for (int try = 0; try < ASKING_TRIES && __atomic_load_n(&in->grant.asking, __ATOMIC_SEQ_CST); try++)
		sys_call0(SYS_sched_yield);
	return sfs_unheld(in);
}

/*
 * After a look at the table. Between the look and the kernel's read another process, or another thread of this one, may get the file, stage and
 * relink: the read may have missed a whole write or, where relinking copies, a part of one. In strict it is made again then: a grant that comes after
 * the number was read changes it, and one that came before is seen.
 */
static ssize_t looked_read(struct sfs_inode *in, int fd, struct sfs_vector v, off_t off, int flags, struct sfs_taken *taken)
{
	const bool at_offset = off < 0, whole = in->vol->mode == SFS_STRICT;
	const off_t at = at_offset && whole ? sys_lseek(fd, 0, SEEK_CUR) : off;
	ssize_t r = 0;

	for (unsigned try = 0; try < READ_TRIES; try++) {
		const uint32_t number = grants(in);
		const int err = likely(!whole || unheld_still(in)) ? sfs_unheld_look(in) : SFS_PASS;

		if (err == SFS_PASS && at_offset && r > 0) {
			*taken = (struct sfs_taken){at, r};
			return SFS_AGAIN;
		}
		if (err < 0) {
			if (at_offset && r > 0)
				sys_lseek(fd, at, SEEK_SET);
			return err;
		}
		r = r > 0 ? again(fd, v, at, r, at_offset) : kernel_reads(fd, v, off, flags);
		if (!whole || r < 0 || at < 0 || likely(grants(in) == number))
			break;
		/* Several at one offset at once: whose bytes these are nobody can tell. */
		if (try == 0 && at_offset && sys_lseek(fd, 0, SEEK_CUR) != at + r)
			break;
	}
	return r;
}

ssize_t sfs_unheld_read(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags, struct sfs_taken *taken)
{
	struct sfs_inode *in = ofd->inode;
	ssize_t r;

	if (!sfs_unheld(in))
		return SFS_PASS;
	if (sfs_grant_pays(ofd, fd, false))
		return SFS_PASS;
	if (off < 0 && !sfs_kernel_offset(ofd, fd))
		return SFS_PASS;
	/* Another thread may have made the descriptor another file's: before the offset moves, or while the bytes were read. */
	r = off < 0 && unlikely(!sfs_fd_still(fd, ofd, in)) ? SFS_GONE : looked_read(in, fd, v, off, flags, taken);
	if (off < 0)
		sfs_kernel_offset_end(ofd);
	else if (unlikely(!sfs_fd_still(fd, ofd, in)))
		r = SFS_GONE;
	in->unheld.reads++;
	in->unheld.read += r > 0 ? (uint64_t)r : 0;
	count(in->vol, passthrough_ops, 1);
	return r;
}

/* ---- writes ---- */

/* Is it what the claim was made of? ofd: fd's; NULL: fd is the library's own. */
static bool claimed_still(const struct sfs_inode *in, ino_t ino, const struct sfs_ofd *ofd, int fd)
{
	return __atomic_load_n(&in->ino, __ATOMIC_RELAXED) == ino && (!ofd || sfs_fd_still(fd, ofd, in));
}

/*
 * From here to sfs_unclaim() the kernel may change the file. SFS_PASS: this process has got a grant, or is getting one. SFS_GONE: of what the
 * descriptor is now nothing is said. vol: a pointer to an inode that is another's by now may lead to another.
 */
static int claim(struct sfs_volume *vol, struct sfs_inode *in, const struct sfs_ofd *ofd, int fd, struct sfs_claim_held *c)
{
	const ino_t ino = __atomic_load_n(&in->ino, __ATOMIC_RELAXED);

	if (unlikely(ino == 0))
		return SFS_GONE;
	for (int try = 0; try < ASKING_TRIES; try++) {
		const int r = sfs_claim(vol, &in->grant, ino, c);

		if (r < 0)
			return r;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (unlikely(!claimed_still(in, ino, ofd, fd))) {
			sfs_unclaim(c);
			return SFS_GONE;
		}
		if (likely(!__atomic_load_n(&in->grant.asking, __ATOMIC_SEQ_CST) && sfs_unheld(in)))
			return 0;
		sfs_unclaim(c);
		if (!sfs_unheld(in))
			break;
		sys_call0(SYS_sched_yield);
	}
	return SFS_PASS;
}

/* fd: an open descriptor of the file. */
static bool may_claim(const struct sfs_inode *in, int fd)
{
	struct sfs_volume *vol = in->vol;

	if (!sfs_unheld(in) || !sfs_kernel_may_write(vol))
		return false;
	/* In the child of a fork, which has no log yet. */
	if (unlikely(load_acquire(&vol->agent.state) == VOL_UNKNOWN))
		sfs_volume_connect(vol, fd);
	return load_acquire(&vol->agent.state) == VOL_READY && vol->claims;
}

static ssize_t claimed_write(struct sfs_volume *vol, struct sfs_inode *in, int fd, struct sfs_vector v, off_t off, int flags)
{
	ssize_t r;

	in->kdirty = true;
	r = sfs_kernel_write(vol, fd, v, off, flags);
	in->unheld.writes++;
	in->unheld.written += r > 0 ? (uint64_t)r : 0;
	count(vol, passthrough_ops, 1);
	return r;
}

ssize_t sfs_unheld_write(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags)
{
	struct sfs_inode *in = ofd->inode;
	struct sfs_volume *vol = in->vol;
	struct sfs_claim_held c;
	ssize_t r;

	if (!may_claim(in, fd))
		return SFS_PASS;
	if (sfs_grant_pays(ofd, fd, true))
		return SFS_PASS;
	if (off < 0 && !sfs_kernel_offset(ofd, fd))
		return SFS_PASS;
	r = claim(vol, in, ofd, fd, &c);
	if (r == 0) {
		r = claimed_write(vol, in, fd, v, off, flags);
		sfs_unclaim(&c);
	}
	if (off < 0)
		sfs_kernel_offset_end(ofd);
	return r;
}

/* ---- other calls ---- */

int sfs_unheld_claim(struct sfs_inode *in, const struct sfs_ofd *ofd, int fd, struct sfs_claim_held *c)
{
	struct sfs_volume *vol = in->vol;
	int r;

	if (vol->mode != SFS_POSIX || !may_claim(in, fd))
		return SFS_PASS;
	r = claim(vol, in, ofd, fd, c);
	if (r == 0)
		in->kdirty = true;
	return r;
}

int sfs_unheld_change(struct sfs_inode *in, const struct sfs_ofd *ofd, int fd, int (*call)(int fd, const long *arg),
		      const long *arg)
{
	struct sfs_claim_held c;
	int r = sfs_unheld_claim(in, ofd, fd, &c);

	if (r == 0) {
		r = call(fd, arg);
		sfs_unclaim(&c);
	}
	return r;
}

int sfs_untold_change(const struct sfs_inode *in)
{
	return in->grant.state == GRANT_UNTOLD && load_acquire(&in->vol->owners) &&
			       !sfs_owners_clean(in->vol, &in->grant, in->ino)
		       ? -EIO
		       : 0;
}

off_t sfs_unheld_lseek(struct sfs_ofd *ofd, int fd, off_t off, int whence)
{
	off_t r;

	if (!sfs_unheld(ofd->inode) || (whence != SEEK_END && whence != SEEK_DATA && whence != SEEK_HOLE))
		return SFS_PASS;
	r = sfs_unheld_look(ofd->inode);
	if (r < 0)
		return r;
	if (!sfs_kernel_offset(ofd, fd))
		return SFS_PASS;
	r = unlikely(!sfs_fd_still(fd, ofd, ofd->inode)) ? SFS_GONE : sys_lseek(fd, off, whence);
	sfs_kernel_offset_end(ofd);
	return r;
}

int sfs_unheld_fsync(struct sfs_ofd *ofd, int fd, bool data_only)
{
	struct sfs_inode *in = ofd->inode;
	int r;

	if (!sfs_unheld(in))
		return SFS_PASS;
	r = sfs_unheld_look(in);
	if (r < 0)
		return r;
	in->unheld.forced++;
	r = data_only ? sys_fdatasync(fd) : sys_fsync(fd);
	return likely(sfs_fd_still(fd, ofd, in)) ? r : SFS_GONE;
}
