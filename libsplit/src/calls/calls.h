/* SPDX-License-Identifier: Apache-2.0 */
/*
 * U-Split without its interception: the file system as functions. The preload layer calls these; tests call them directly.
 *
 * Descriptors are the kernel's own. Functions return the result of the call they stand for, or a negative errno value; none
 * touches errno. SFS_PASS means: not ours, or the kernel's view has been made true; make the real call (and, for a call that changes the file, then call
 * sfs_changed()).
 */
#ifndef SFS_CALLS_H
#define SFS_CALLS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <ucontext.h>

#include "base/iov.h"
#include "fds/table.h"
#include "files/change.h"
#include "files/first.h"
#include "meta/durable.h"

/*
 * Look at a descriptor that nobody told us about (inherited, received), or that another thread is about to change: is it a file of one of our
 * volumes?
 */
bool sfs_ours_unknown(int fd);

/* Is fd an open file of one of our volumes? Two loads where it is known; any fd, any time, also in a signal handler. */
static inline bool sfs_ours(int fd)
{
	struct sfs_ofd *o;

	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return false;
	o = __atomic_load_n(&sfs_fds[fd], __ATOMIC_ACQUIRE);
	if (likely(o > SFS_PRIVATE))
		return true;
	return o != SFS_FOREIGN && o != SFS_PRIVATE && sfs_ours_unknown(fd);
}

/*
 * Read SPLITFS_CONFIG from envp, the environment or what stands in for it (NULL: no volumes), install nothing else. Called from the constructor. Returns sfs_active(). No system call is
 * made when there is no configuration, and no memory of ours touched: an idle process pays for each page. Inherited descriptors are adopted
 * when they are first used. `cold`, as all that runs in every process is: it lies together then, beside what the loader reads.
 */
bool sfs_init(char *const *envp) __attribute__((cold));
/*
 * A signal handler is about to be installed, or a thread to be cancelled. Until the first time, locks do without blocking signals
 * (base/lock.h), if sfs_handlers_none() was called: by who sees all calls of that kind.
 */
void sfs_handler_installed(void);
/* In the handler of SIGBUS: is the store to addr to be made again, as a volume may have space for it now? (sfs_pool_awaits_space()) */
bool sfs_store_again(uintptr_t addr);
/*
 * Called by a signal handler, with its arguments: is this the middle of a call that is to end first? Then the thread gets the signal again at the
 * end of it, and it and `block` (a bit for each signal, 1 is the lowest) stay blocked until then.
 */
bool sfs_defer(int sig, const siginfo_t *info, ucontext_t *at, uint64_t block);
/*
 * For whoever calls sfs_defer() to set: call the program's handler, with everything blocked before and after; at->uc_sigmask is what the
 * thread has blocked otherwise. False: it has a stack of its own, and `must` is not set.
 */
typedef bool sfs_call_handler_fn(int sig, siginfo_t *info, ucontext_t *at, bool must);
extern sfs_call_handler_fn *sfs_call_handler __attribute__((visibility("hidden")));
/*
 * RLIMIT_FSIZE is about to become this. What is staged goes into the files before: behind the limit this process could not bring it in
 * any more. sfs_limits_changed() follows.
 */
void sfs_limit_coming(uint64_t bytes);
/* setrlimit(2) was called: RLIMIT_FSIZE may be another. */
void sfs_limits_changed(void);
/* Is any volume configured? When not, the wrappers only pass calls on. */
bool sfs_active(void);

/*
 * openat(2), completely: the kernel opens the file; when it is a regular file of a volume it becomes ours. Returns the
 * descriptor.
 */
int sfs_openat(int dirfd, const char *path, int flags, mode_t mode);
/* A descriptor that came from elsewhere (inherited, recvmsg, tmpfile): make it ours if it is a regular file of a volume. */
void sfs_adopt(int fd);
int sfs_close(int fd);

/* off < 0: at the file offset, which advances. flags: RWF_*. Partial results as the kernel gives them. */
ssize_t sfs_readv(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
ssize_t sfs_read(int fd, void *buf, size_t n, off_t off);
ssize_t sfs_write(int fd, const void *buf, size_t n, off_t off);
/*
 * The short way of a write(2) that continues what was appended last: true when it needed nothing but room. False: nothing was done,
 * sfs_write() does it.
 */
bool sfs_append(struct sfs_ofd *ofd, int fd, const void *buf, size_t n);
/* The same of a pwrite(2) over bytes that the file has: true when it was one store to the window. */
bool sfs_store(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off);
/* The same of read(2) and pread(2), at the file offset when off is negative: true when n bytes were one copy from the window. */
bool sfs_read_window(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off);
/* The same calls where sfs_timed() says that this one is (record/latency.h). */
ssize_t sfs_timed_read(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off);
ssize_t sfs_timed_write(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off);
int sfs_timed_fsync(int fd, bool data_only);
off_t sfs_lseek(int fd, off_t off, int whence);
int sfs_fsync(int fd, bool data_only);
/* sync(2), syncfs(2): everything staged is relinked; the caller then makes the real call. */
void sfs_sync_all(void);
int sfs_ftruncate(int fd, off_t len);
/*
 * Before somebody else truncates or writes the file with this device and number: it is made true, and stays the kernel's. No descriptor is
 * closed, which would drop the process's locks on it. SFS_UNKNOWN: other processes may still have it staged.
 */
int sfs_give_up_known(dev_t dev, ino_t ino);
/* truncate(2) of a file of a volume, by what stat says of it. SFS_UNKNOWN: other processes may still have it staged. */
int sfs_truncate_known(dev_t dev, ino_t ino, off_t len);
/* What O_TRUNC does, also to a file opened read-only with these flags; fd need not be ours. */
int sfs_truncate_open(int fd, int flags);
int sfs_fallocate(int fd, int mode, off_t off, off_t len);
/*
 * splitfs_peek(3): *p is [off, off + *got) of the file as it is now, until sfs_unpeek(*p), with *got as pread(2) counts; NULL
 * where that is 0. 0; -ENOTSUP: it is not ours, or not ours alone; SFS_PEEK_COPY: it is to be copied this time, which is as good;
 * another negative errno value.
 */
int sfs_peek(int fd, off_t off, size_t len, const void **p, size_t *got);
int sfs_unpeek(const void *p);
/*
 * splitfs_pool_create(3) and the others there, with the same errors. The result of sfs_pool_create() is the pool's number;
 * -ENOTSUP: the directory is on no volume that is served. sfs_alloc(): *p is the buffer.
 */
int sfs_pool_create(int dirfd, size_t size);
int sfs_pool_destroy(int pool);
int sfs_alloc(int pool, off_t off, size_t len, void **p);
int sfs_free(void *buf);
/* splitfs_swap(3). */
int sfs_swap(int fd1, off_t off1, int fd2, off_t off2, size_t len);
/* splitfs_write_atomic(3). */
int sfs_write_atomic(const struct sfs_range *ranges, int n);
/* splitfs_patch(3). -EINVAL also where `buf` is none of the core's. */
ssize_t sfs_patch(int fd, void *buf, size_t len, off_t off);
/* fcntl(2) with F_DUPFD*, F_SETFL, F_SETLK, ... completely; also for descriptors that are not ours. */
int sfs_fcntl(int fd, int cmd, long arg);
/* dup(2), dup2(2), dup3(2) completely, for any descriptors. newfd < 0: dup. */
int sfs_dup(int fd);
int sfs_dup3(int fd, int newfd, int flags);
int sfs_close_range(unsigned first, unsigned last, unsigned flags);

/*
 * Make the kernel's view of the file true: staged bytes relinked, offset pushed with lseek. Before any call on fd that we do
 * not serve. With `forever`, stop staging for this inode (mmap, io_uring): from now on the kernel serves it.
 */
int sfs_make_true(int fd, bool forever);
/*
 * The same before a call by which the kernel changes the file: sfs_true_to_change() (files/change.h). Before one that does so to
 * files that can't be named: snapshots of any file are saved, and none is taken until sfs_snapshots_allow(). Before a fork they are
 * saved, too.
 */
void sfs_snapshots_save(void);
void sfs_snapshots_bar(void);
void sfs_snapshots_allow(void);
/* The same before a call that does not change the file's bytes: times, flock(2). */
int sfs_true_to_look(int fd);
/*
 * The same before a POSIX lock is taken: until sfs_lock_over(), which is to follow that call whatever it returned and is
 * sfs_changed() too, no descriptor of ours of the file is closed. After an error there is nothing to end.
 */
struct sfs_locking {
	struct sfs_inode *in;
	ino_t ino;
};
int sfs_true_to_lock(int fd, struct sfs_locking *l);
void sfs_lock_over(int fd, const struct sfs_locking *l);
/* fcntl(2) with F_SETLEASE, completely. */
int sfs_setlease(int fd, int type);
/* Before the kernel maps fd, true for good: the file stays the kernel's in this process, also when it is closed and opened again. */
int sfs_mapped(int fd);
/* After such a call: reload offset and size from the kernel. */
void sfs_changed(int fd);
/* The same for the file a path names (rename, link, unlink, utimens, ...): relinks what is staged; no-op for other files. */
int sfs_make_path_true(int dirfd, const char *path, int at_flags);

/*
 * unlink.c: around a call by which the kernel removes a name. What is staged of the file is relinked by one of them, or, where it has no other
 * name and nobody else has it open, thrown away at the end. gone: the name is, and as durably as the mode promises. The first returns what
 * sfs_make_path_true() does.
 */
struct sfs_unlink {
	dev_t dev;
	ino_t ino;   /* 0: the second has nothing to do */
	bool staged; /* what is, the second throws away or relinks */
	bool last;   /* it had no other name */
};
int sfs_unlink_begin(int dirfd, const char *path, struct sfs_unlink *u);
void sfs_unlink_end(const struct sfs_unlink *u, bool gone);

/*
 * Correct what the kernel said of a file: size and times while bytes are staged. No-op for other files. True: bytes of it were staged, by
 * another process or by this one, which the kernel knows of by now: make the call once more. seen: sfs_stat_begin() before the call.
 */
uint64_t sfs_stat_begin(void);
bool sfs_fix_stat(struct stat *st, uint64_t seen);
struct statx;
bool sfs_fix_statx(struct statx *stx, uint64_t seen);

/* fork(2): before, and after it in parent and child. The child serves its files through its own log. */
void sfs_fork_prepare(void);
void sfs_fork_parent(void);
void sfs_fork_child(void);
/*
 * Before execve, posix_spawn, system, popen: everything relinked, offsets pushed, for all descriptors; the descriptors stay ours (the exec may
 * fail; the offsets of descriptors that a spawned child may share are the kernel's from then on).
 */
void sfs_exec_prepare(void);
/*
 * Right before execve, or posix_spawn and its like, whose child may write before we come back: the agent is told which files the new program
 * has open for writing from the start. Waits for who stages for them. all: a child may have what is closed by execve, by another number.
 */
void sfs_exec_announce(bool all);
/* Right behind posix_spawn and its like: it was for the child, which this thread has made last, if there is one. */
void sfs_spawn_announce(bool all);
/*
 * Right before execve, which keeps the process's locks: descriptors of ours that would drop them, being closed by it, stay open in the new
 * program. keep false: the call has failed.
 */
void sfs_exec_keep_locks(bool keep);
/* exit, _exit, abort, quick_exit: everything relinked. Also the library's destructor. */
void sfs_exit(void);

/*
 * The preload layer needs these besides (each is a no-op for descriptors and processes that have nothing to do with a volume).
 *
 * The C library is about to close fd behind our back (fclose, freopen, daemon): make the file true and drop fd from the table
 * without closing it. Afterwards sfs_ours(fd) is false.
 */
void sfs_forget(int fd);
/* The same when it has happened already, in the child of a fork: fd leads to something else. */
void sfs_replaced(int fd);
/*
 * Must writes to fd that bypass us (C streams, programs started with it) be made durable one by one by the kernel (O_DSYNC) to keep
 * what the volume's mode promises? Not where this process has a lock on the file, which opening and closing it once more would drop.
 */
bool sfs_wants_dsync(int fd);
/*
 * Bytes will reach fd without our seeing it (a standard stream, another process): where the mode promises that they are durable, the
 * kernel must see to it (O_DSYNC). Where that can't be arranged any more nothing happens; an error is one of the new descriptor.
 */
int sfs_write_through(int fd);
void sfs_write_through_all(void); /* all descriptors, before a fork or exec shares them */
/* io_uring: calls that we cannot see will come. Everything is made true, and nothing is staged any more in this process. */
void sfs_stop_staging(void);
/* Has the process one thread, our own not counted? In doubt it has more. */
bool sfs_one_thread(void);
/* The file at path (NULL: the open file dirfd) was given set-user-ID or set-group-ID bits, or capabilities: a write is to end them. */
void sfs_privileges_given(int dirfd, const char *path, int at_flags);
/* Whole path made true for every open file (nftw, fts: the C library reads sizes itself); cheap when nothing is staged. */
void sfs_all_true(void);

#endif
