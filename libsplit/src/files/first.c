/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first few calls on a descriptor that this process has opened: the kernel makes them, and nothing is looked up of a file that is closed after
 * them. Whether somebody stages bytes of it the agent's table says, in the word for all files or, where somebody has some file, in this one's.
 *
 * A read, lseek or fsync keeps nobody from anything: it may be of a pipe or a hung file system, as nobody has looked what it is of. A write is
 * claimed by the file's number.
 */
#include "files/first.h"

#include <sys/stat.h>

#include "base/sys.h"
#include "fds/table.h"
#include "files/forces.h"
#include "files/unheld.h"

/* One such call. */
struct first {
	struct sfs_volume *vol;
	const uint64_t *owners; /* the agent's table */
	uint64_t opening;	/* of the descriptor */
	uint32_t index;		/* of the word that says that nobody stages the file */
	uint64_t said;		/* what it was */
	uint32_t forks;		/* sfs.forks: in the child of a handler's fork the call is the parent's */
};

static uint64_t word(const struct first *f, uint32_t index)
{
	return __atomic_load_n(&f->owners[index], __ATOMIC_SEQ_CST);
}

static bool unstaged(struct first *f, uint32_t index)
{
	f->index = index;
	f->said = word(f, index);
	return sfs_owners_stagers(f->said) == 0;
}

/* Calls on the offset that are in no description's count, as there is none: who makes one looks here (calls/adopt.c). */
static void count_call(const struct first *f, int fd, int by)
{
	if (likely(f->forks == sfs.forks))
		__atomic_add_fetch(&sfs_fds_calls[fd], by, __ATOMIC_SEQ_CST);
}

/* Is it still what it was when the call began, and nothing known of it? After the call was counted: who closes the number looks at that later. */
static bool still(const struct first *f, int fd)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return sfs_only_opened(fd) && (load_acquire(&sfs_fds_first[fd]) & SFS_FIRST_OPENING) == f->opening;
}

/* Which file of the volume it is; the kernel is asked once. 0: none, or its number is too large. */
static uint64_t ino_of(const struct first *f, int fd)
{
	uint64_t first = load_acquire(&sfs_fds_first[fd]);
	struct stat st;

	if ((first & SFS_FIRST_OPENING) != f->opening)
		return 0;
	if (first & SFS_FIRST_INO)
		return first & SFS_FIRST_INO;
	if (sys_fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_dev != load_acquire(&f->vol->dev) ||
	    st.st_ino > SFS_FIRST_INO)
		return 0;
	if (__atomic_compare_exchange_n(&sfs_fds_first[fd], &first, first | st.st_ino, false, __ATOMIC_SEQ_CST,
					__ATOMIC_RELAXED))
		return st.st_ino;
	return (first & SFS_FIRST_OPENING) == f->opening ? first & SFS_FIRST_INO : 0; /* another thread has asked */
}

/* One more of the few. Not to the flags of another opening, nor above the most, however many threads come at once. */
static void made(int fd)
{
	int flags = __atomic_load_n(&sfs_fds_flags[fd], __ATOMIC_RELAXED);

	if (flags < SFS_FIRST_MOST)
		__atomic_compare_exchange_n(&sfs_fds_flags[fd], &flags, flags + SFS_FIRST_CALL, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
}

/* True: it may be made, if nobody stages the file; end() ends it. */
static bool begin(struct first *f, int fd)
{
	struct sfs_volume *vol = &sfs.volumes[0];

	sfs_check_fork();
	f->vol = vol;
	f->owners = load_acquire(&vol->owners);
	if (!sfs_only_opened(fd) || sfs.nvolumes != 1 || sfs.grant_first || !f->owners ||
	    __atomic_load_n(&sfs_fds_flags[fd], __ATOMIC_RELAXED) >= SFS_FIRST_MOST)
		return false;
	f->opening = load_acquire(&sfs_fds_first[fd]) & SFS_FIRST_OPENING;
	f->forks = sfs.forks;
	count_call(f, fd, 1);
	return true;
}

static void end(const struct first *f, int fd)
{
	count_call(f, fd, -1);
}

/* May the kernel's view be used? */
static bool looks(struct first *f, int fd)
{
	const enum sfs_volume_state state = load_acquire(&f->vol->agent.state);
	uint64_t ino;

	if (state != VOL_READY && state != VOL_UNKNOWN)
		return false;
	if (unlikely(!unstaged(f, SFS_OWNERS_ALL))) {
		ino = ino_of(f, fd);
		if (ino == 0 || !unstaged(f, sfs_owners_index(ino)))
			return false;
	}
	if (unlikely(!still(f, fd)))
		return false;
	made(fd);
	return true;
}

/*
 * In strict, like looked_read() in files/unheld.c: with a grant between the look and the kernel's read, it may have missed a write or seen a part
 * of one. Then the offset goes back, and the read is made with all that there is. Where another thread has moved the offset, or where there is none,
 * as in a pipe, it stands.
 */
static ssize_t looked_read(const struct first *f, int fd, void *buf, size_t n, off_t off, bool *again)
{
	const bool whole = f->vol->mode == SFS_STRICT;
	const off_t at = whole && off < 0 ? sys_lseek(fd, 0, SEEK_CUR) : off;
	const ssize_t r = off < 0 ? sys_read(fd, buf, n) : sys_pread(fd, buf, n, off);

	if (likely(!whole || word(f, f->index) == f->said) || r <= 0 || at < 0)
		return r;
	if (off < 0 && (sys_lseek(fd, 0, SEEK_CUR) != at + r || sys_lseek(fd, at, SEEK_SET) != at))
		return r;
	*again = true;
	return r;
}

bool sfs_first_read(int fd, void *buf, size_t n, off_t off, ssize_t *r)
{
	struct first f;
	bool again;

	if (!begin(&f, fd))
		return false;
	again = !looks(&f, fd);
	if (!again)
		*r = looked_read(&f, fd, buf, n, off, &again);
	/* Another thread may have made it another file's meanwhile. Where the offset has moved it stands, as with descriptors that are known. */
	if (off >= 0 && !still(&f, fd))
		again = true;
	end(&f, fd);
	return !again;
}

/* Where nobody has staged anything the kernel's size is true. */
bool sfs_first_lseek(int fd, off_t off, int whence, off_t *r)
{
	struct first f;
	bool may;

	if (!begin(&f, fd))
		return false;
	may = looks(&f, fd);
	if (may)
		*r = sys_lseek(fd, off, whence);
	end(&f, fd);
	return may;
}

bool sfs_first_true(int fd)
{
	struct first f;
	bool may;

	if (!begin(&f, fd))
		return false;
	may = looks(&f, fd);
	end(&f, fd);
	return may;
}

/* Was the file written by this descriptor, and is this the second fsync? */
static void forced(struct sfs_volume *vol, int fd)
{
	int before;

	if (!sfs_forces_count(vol))
		return;
	before = __atomic_fetch_or(&sfs_fds_flags[fd], SFS_FIRST_FORCED, __ATOMIC_RELAXED);
	if ((before & (SFS_FIRST_WRITTEN | SFS_FIRST_FORCED | SFS_FIRST_TWICE)) == (SFS_FIRST_WRITTEN | SFS_FIRST_FORCED)) {
		__atomic_fetch_or(&sfs_fds_flags[fd], SFS_FIRST_TWICE, __ATOMIC_RELAXED);
		sfs_forces_note(vol, 0, 1);
	}
}

static void written(struct sfs_volume *vol, int fd)
{
	if (sfs_forces_count(vol) &&
	    !(__atomic_fetch_or(&sfs_fds_flags[fd], SFS_FIRST_WRITTEN, __ATOMIC_RELAXED) & SFS_FIRST_WRITTEN))
		sfs_forces_note(vol, 1, 0);
}

bool sfs_first_fsync(int fd, bool data_only, int *r)
{
	if (!sfs_first_true(fd))
		return false;
	forced(&sfs.volumes[0], fd);
	*r = data_only ? sys_fdatasync(fd) : sys_fsync(fd);
	return true;
}

/*
 * From here to unclaim() nobody is given a grant of the file, in this process or another: each of the claim and the grant is made before the other one is
 * looked at. Who closes the number waits (sfs_fds_written()).
 */
static void claim(const struct first *f, int fd, uint64_t ino, struct sfs_claim_held *c)
{
	count_call(f, fd, SFS_FIRST_WRITE);
	sfs_claim_only(f->vol, ino, c);
}

static void unclaim(const struct first *f, int fd, struct sfs_claim_held *c)
{
	sfs_unclaim(c);
	count_call(f, fd, -SFS_FIRST_WRITE);
}

/* The claim, if the write may be made. */
static bool claims(const struct first *f, int fd, struct sfs_claim_held *c)
{
	uint64_t ino;

	if (load_acquire(&f->vol->agent.state) != VOL_READY || !f->vol->claims || !sfs_kernel_may_write(f->vol) ||
	    sfs_forces_expected(f->vol))
		return false;
	ino = ino_of(f, fd);
	if (ino == 0)
		return false;
	claim(f, fd, ino, c);
	if (likely(!sfs_owners_any(word(f, sfs_owners_index(ino))) && still(f, fd) &&
		   __atomic_load_n(&sfs_files.asking, __ATOMIC_SEQ_CST) == 0)) {
		made(fd);
		return true;
	}
	unclaim(f, fd, c);
	return false;
}

bool sfs_first_write(int fd, const void *buf, size_t n, off_t off, ssize_t *r)
{
	const struct iovec iov = {(void *)buf, n};
	struct sfs_claim_held c;
	struct first f;
	bool may;

	if (!begin(&f, fd))
		return false;
	may = claims(&f, fd, &c);
	if (may) {
		*r = sfs_kernel_write(f.vol, fd, (struct sfs_vector){&iov, 1, true}, off, 0);
		unclaim(&f, fd, &c);
		written(f.vol, fd);
	}
	end(&f, fd);
	return may;
}
