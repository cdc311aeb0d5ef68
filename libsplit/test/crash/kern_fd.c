/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, and the system calls of the library led to kern.c and kern_map.c. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "crash/kern.h"
#include "crash/record.h"
#include "harness.h"

#include "base/sys.h"
#include "ext4_relink.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define XFS_MAGIC	   0x58465342
#define IOC_EXCHANGE_RANGE _IOW('X', 129, struct exchange_range)

struct exchange_range { /* linux/xfs_fs.h of 6.10 */
	int32_t file1_fd;
	uint32_t pad;
	uint64_t file1_offset, file2_offset, length, flags;
};

struct kern_ofd {
	int refs;
	off_t off;
};

static struct kern_fd fds[KERN_FDS];
static struct kern_ofd ofds[KERN_FDS];

struct kern_fd *kern_fd_get(int fd)
{
	fd -= KERN_FD_BASE;
	return fd >= 0 && fd < KERN_FDS && fds[fd].kind ? &fds[fd] : NULL;
}

uint32_t kern_fd_ino(int fd)
{
	const struct kern_fd *f = kern_fd_get(fd);

	return f && f->kind == KERN_FD_FILE ? f->ino : 0;
}

static int slot(void)
{
	for (int i = 0; i < KERN_FDS; i++)
		if (!fds[i].kind)
			return i;
	return -EMFILE;
}

int kern_fd_new(int kind, uint32_t ino, int flags)
{
	const int i = slot();
	int k = 0;

	if (i < 0)
		return i;
	while (ofds[k].refs)
		k++;
	ofds[k] = (struct kern_ofd){1, 0};
	fds[i] = (struct kern_fd){(uint8_t)kind, (uint8_t)ino, flags, &ofds[k]};
	return KERN_FD_BASE + i;
}

bool kern_is_open(uint32_t ino)
{
	for (int i = 0; i < KERN_FDS; i++)
		if (fds[i].kind == KERN_FD_FILE && fds[i].ino == ino)
			return true;
	return false;
}

/* A lease for writing: only where the file is open by no other description. */
static long lease(const struct kern_fd *f)
{
	for (int i = 0; i < KERN_FDS; i++)
		if (fds[i].kind == KERN_FD_FILE && fds[i].ino == f->ino && fds[i].ofd != f->ofd)
			return -EAGAIN;
	return 0;
}

static long dup_fd(int fd)
{
	struct kern_fd *f = kern_fd_get(fd);
	const int i = slot();

	if (!f || i < 0)
		return f ? i : -EBADF;
	fds[i] = *f;
	f->ofd->refs++;
	return KERN_FD_BASE + i;
}

static long close_fd(int fd)
{
	struct kern_fd *f = kern_fd_get(fd);
	uint32_t ino;

	if (!f)
		return -EBADF;
	ino = f->ino;
	f->ofd->refs--;
	f->kind = 0;
	if (ino && kern.m.inode[ino].nlink == 0 && !kern_is_open(ino)) {
		memset(&kern.m.inode[ino], 0, sizeof(kern.m.inode[ino]));
		if (kern.on_meta)
			kern.on_meta(1ull << ino);
	}
	return 0;
}

void kern_forget_process(void)
{
	kern_map_forget();
	memset(fds, 0, sizeof(fds));
	memset(ofds, 0, sizeof(ofds));
	for (uint32_t i = KERN_ROOT_INO; i < KERN_INODES; i++)
		if (kern.m.inode[i].type && kern.m.inode[i].nlink == 0)
			memset(&kern.m.inode[i], 0, sizeof(kern.m.inode[i]));
}

/* ---- calls */

static long stat_of(uint32_t ino, struct stat *st)
{
	const struct kern_inode *in = &kern.m.inode[ino];

	memset(st, 0, sizeof(*st));
	st->st_dev = KERN_DEV;
	st->st_ino = ino;
	st->st_nlink = in->nlink;
	st->st_mode = in->mode | (in->type == KERN_DIR ? S_IFDIR : in->type == KERN_LINK ? S_IFLNK : S_IFREG);
	st->st_size = (off_t)in->size;
	st->st_blksize = KERN_BLOCK;
	for (unsigned k = 0; k < KERN_FILE_BLOCKS; k++)
		st->st_blocks += in->blk[k] ? KERN_BLOCK / 512 : 0;
	return 0;
}

static long statx_of(int fd, struct statx *stx)
{
	const uint32_t ino = kern_fd_ino(fd);

	if (!ino)
		return -EBADF;
	memset(stx, 0, sizeof(*stx));
	stx->stx_mask = STATX_BASIC_STATS;
	stx->stx_ino = ino;
	stx->stx_size = kern.m.inode[ino].size;
	stx->stx_attributes_mask = STATX_ATTR_DAX;
	stx->stx_attributes = kern.dax ? STATX_ATTR_DAX : 0;
	return 0;
}

static long statfs_of(struct statfs *sf)
{
	memset(sf, 0, sizeof(*sf));
	sf->f_type = kern.fs == KERN_EXT4 || kern.fs == KERN_EXT4_RELINK ? EXT4_SUPER_MAGIC : XFS_MAGIC;
	sf->f_bsize = KERN_BLOCK;
	sf->f_blocks = KERN_BLOCKS;
	sf->f_bfree = sf->f_bavail = KERN_BLOCKS - kern.next_block;
	return 0;
}

/* All pieces in one operation, as the file systems do it: the size is raised once. */
static long io(int fd, const struct iovec *iov, int cnt, off_t off, bool write, int flags, void *site)
{
	static uint8_t bytes[KERN_FILE_BLOCKS * KERN_BLOCK];
	struct kern_fd *f = kern_fd_get(fd);
	const bool at_offset = off < 0;
	size_t total = 0, done = 0;
	long r;

	if (!f || f->kind != KERN_FD_FILE)
		return -EBADF;
	if (at_offset)
		off = f->ofd->off;
	if (write && (f->flags & O_APPEND))
		off = (off_t)kern.m.inode[f->ino].size;
	for (int i = 0; i < cnt; i++) {
		const size_t n = iov[i].iov_len < sizeof(bytes) - total ? iov[i].iov_len : sizeof(bytes) - total;

		if (write)
			memcpy(bytes + total, iov[i].iov_base, n);
		total += n;
	}
	r = write ? kern_pwrite(f->ino, bytes, total, off) : kern_pread(f->ino, bytes, total, off);
	for (int i = 0; !write && i < cnt && (long)done < r; i++) {
		const size_t n = iov[i].iov_len < (size_t)r - done ? iov[i].iov_len : (size_t)r - done;

		memcpy(iov[i].iov_base, bytes + done, n);
		done += n;
	}
	if (r < 0)
		return r;
	if (at_offset)
		f->ofd->off = off + r;
	if (write && (flags & (RWF_DSYNC | RWF_SYNC)) && kern.on_sync)
		kern.on_sync(f->ino, site);
	return r;
}

static long seek(int fd, off_t off, int whence)
{
	struct kern_fd *f = kern_fd_get(fd);

	if (!f || f->kind != KERN_FD_FILE)
		return -EBADF;
	if (whence == SEEK_DATA || whence == SEEK_HOLE)
		off = kern_seek_data(f->ino, off, whence == SEEK_DATA);
	else
		off += whence == SEEK_CUR ? f->ofd->off : whence == SEEK_END ? (off_t)kern.m.inode[f->ino].size : 0;
	if (off >= 0)
		f->ofd->off = off;
	return off;
}

static long relink_of(uint32_t ino, struct ext4_relink *x)
{
	int moved;

	if (x->flags & EXT4_RELINK_QUERY) {
		x->version = EXT4_RELINK_VERSION;
		x->known_flags = ~0u;
		return 0;
	}
	if (x->flags & EXT4_RELINK_EXCHANGE)
		return kern_exchange(kern_fd_ino(x->donor_fd), (off_t)x->donor_offset, ino, (off_t)x->target_offset, x->length);
	/* Without the flag the kernel would write back what was stored through mappings of the donor. */
	CHECK(!!(x->flags & EXT4_RELINK_DATA_PERSISTENT) == kern.dax && x->flags & EXT4_RELINK_SKIP_HOLES);
	moved = kern_relink(kern_fd_ino(x->donor_fd), (off_t)x->donor_offset, ino, (off_t)x->target_offset, x->length,
			    x->new_size);
	if (moved < 0)
		return moved;
	x->moved = x->length;
	x->extents_moved = (uint32_t)moved;
	return 0;
}

static long ioctl_of(int fd, unsigned long req, void *arg)
{
	const uint32_t ino = kern_fd_ino(fd);

	if (!ino)
		return -EBADF;
	if (req == FS_IOC_GETVERSION) {
		*(long *)arg = (int)kern.m.inode[ino].gen;
		return 0;
	}
	if (req == FS_IOC_FIEMAP) { /* where blocks lie is nobody's business here */
		((struct fiemap *)arg)->fm_mapped_extents = 0;
		return 0;
	}
	if (req == FICLONERANGE) {
		const struct file_clone_range *c = arg;

		return kern_clone(kern_fd_ino((int)c->src_fd), (off_t)c->src_offset, ino, (off_t)c->dest_offset, c->src_length);
	}
	if (req == IOC_EXCHANGE_RANGE && kern.fs == KERN_XFS_EXCHANGE) {
		const struct exchange_range *x = arg;

		return kern_exchange(kern_fd_ino(x->file1_fd), (off_t)x->file1_offset, ino, (off_t)x->file2_offset, x->length);
	}
	if (req == EXT4_IOC_RELINK && kern.fs == KERN_EXT4_RELINK)
		return relink_of(ino, arg);
	return -ENOTTY;
}

static long sync_fd(int fd, bool whole, void *site)
{
	const uint32_t ino = kern_fd_ino(fd);

	if (!ino)
		return -EBADF;
	if (kern.on_sync)
		kern.on_sync(whole ? 0 : ino, site);
	return 0;
}

static long at_path(long n, long a, long b, long c, long d)
{
	const int ino = kern_lookup((int)a, (const char *)b, n != SYS_newfstatat || !(d & AT_SYMLINK_NOFOLLOW));

	if (n == SYS_newfstatat && (d & AT_EMPTY_PATH) && !*(const char *)b)
		return kern_fd_ino((int)a) ? stat_of(kern_fd_ino((int)a), (struct stat *)c) : -EBADF;
	if (ino < 0)
		return ino;
	return n == SYS_newfstatat ? stat_of((uint32_t)ino, (struct stat *)c) : kern_chmod((uint32_t)ino, (mode_t)c);
}

long kern_call(long n, long a, long b, long c, long d, long e, long f, void *site)
{
	const struct iovec one = {(void *)b, (size_t)c};
	const uint32_t ino = kern_fd_ino((int)a);
	struct kern_fd *fd;
	int i;

	switch (n) {
	case SYS_openat:
		return kern_open((int)a, (const char *)b, (int)c, (mode_t)d);
	case SYS_close:
		return close_fd((int)a);
	case SYS_read:
		return io((int)a, &one, 1, -1, false, 0, site);
	case SYS_write:
		return io((int)a, &one, 1, -1, true, 0, site);
	case SYS_pread64:
		return io((int)a, &one, 1, d, false, 0, site);
	case SYS_pwrite64:
		return io((int)a, &one, 1, d, true, 0, site);
	case SYS_preadv2:
		return io((int)a, (const struct iovec *)b, (int)c, d, false, 0, site);
	case SYS_pwritev2:
		return io((int)a, (const struct iovec *)b, (int)c, d, true, (int)f, site);
	case SYS_lseek:
		return seek((int)a, b, (int)c);
	case SYS_fstat:
		return ino ? stat_of(ino, (struct stat *)b) : -EBADF;
	case SYS_statx:
		return statx_of((int)a, (struct statx *)e);
	case SYS_newfstatat:
	case SYS_fchmodat:
		return at_path(n, a, b, c, d);
	case SYS_fchmod:
		return ino ? kern_chmod(ino, (mode_t)b) : -EBADF;
	case SYS_ftruncate:
		return ino ? kern_truncate(ino, b) : -EBADF;
	case SYS_truncate:
		i = kern_lookup(AT_FDCWD, (const char *)a, true);
		return i < 0 ? i : kern_truncate((uint32_t)i, b);
	case SYS_fallocate:
		return ino ? kern_fallocate(ino, (int)b, c, d) : -EBADF;
	case SYS_fsync:
	case SYS_fdatasync:
		return sync_fd((int)a, false, site);
	case SYS_syncfs:
		return sync_fd((int)a, true, site);
	case SYS_fcntl:
		fd = kern_fd_get((int)a);
		if (!fd)
			return -EBADF;
		if (b == F_SETLEASE)
			return lease(fd);
		if (b == F_OFD_GETLK)
			return -EINVAL; /* it knows of no locks */
		return b == F_DUPFD || b == F_DUPFD_CLOEXEC ? dup_fd((int)a) : b == F_GETFL ? fd->flags : 0;
	case SYS_dup:
		return dup_fd((int)a);
	case SYS_ioctl:
		return ioctl_of((int)a, (unsigned long)b, (void *)c);
	case SYS_mmap:
		return kern_map((void *)a, (size_t)b, (int)c, (int)d, (int)e, f);
	case SYS_munmap:
		return kern_unmap((void *)a, (size_t)b);
	case SYS_mremap:
		return d & MREMAP_FIXED ? kern_map_move((void *)a, (size_t)b, (void *)e)
					: kern_map_resize((void *)a, (size_t)b, (size_t)c);
	case SYS_mprotect:
		return mprotect((void *)a, (size_t)b, (int)c) < 0 ? -errno : 0;
	case SYS_unlinkat:
		return kern_unlink((int)a, (const char *)b, (int)c);
	case SYS_renameat2:
		return kern_rename((int)a, (const char *)b, (int)c, (const char *)d, (unsigned)e);
	case SYS_linkat:
		return kern_link((int)a, (const char *)b, (int)c, (const char *)d);
	case SYS_mkdirat:
		return kern_mkdir((int)a, (const char *)b, (mode_t)c);
	case SYS_symlinkat:
		return kern_symlink((const char *)a, (int)b, (const char *)c);
	case SYS_fstatfs:
		return statfs_of((struct statfs *)b);
	case SYS_socket:
		return kern_fd_new(KERN_FD_SOCKET, 0, O_RDWR);
	case SYS_eventfd2:
		return kern_fd_new(KERN_FD_EVENT, 0, O_RDWR);
	case SYS_sendmsg:
		return agent_sendmsg((int)a, (const struct msghdr *)b);
	case SYS_recvmsg:
		return agent_recvmsg((int)a, (struct msghdr *)b);
	case SYS_getpid:
		return 1000;
	case SYS_madvise:
		if (c == MADV_POPULATE_WRITE)
			kern_fault((const void *)a, (size_t)b);
		return 0;
	case SYS_ppoll: /* for what the agent asks, or answers */
		CHECK_EQ(b, 1);
		return agent_readable(((const struct pollfd *)a)->fd);
	case SYS_clock_gettime: /* it stands: nothing takes any time here */
		*(struct timespec *)b = (struct timespec){0};
		return 0;
	case SYS_futex:
		CHECK_EQ(b & FUTEX_CMD_MASK, FUTEX_WAKE); /* nobody waits, and nobody would wake who does */
		return 0;
	case SYS_connect:
	case SYS_nanosleep:  /* nothing takes any time */
	case SYS_membarrier: /* there is one thread */
	case SYS_utimensat:  /* times are not part of what is checked, and no operation of the journal here */
	case SYS_rt_sigprocmask:
		return 0;
	case SYS_fgetxattr: /* no file has capabilities */
		return -ENODATA;
	case SYS_prlimit64:
		return -ENOSYS; /* the library does without */
	default:
		FAIL("the explorer's kernel does not know system call %ld", n);
	}
}
