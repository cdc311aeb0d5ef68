/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's own functions, found behind us in the search order (RTLD_NEXT), each with a fallback for programs whose C
 * library does not have it: the system call of the same arguments (S), or a function of real_fallback.c (F).
 *
 * With 64-bit words every ...64 name is the same function as its plain name, so only plain names are looked up.
 */
#ifndef SFS_PRELOAD_REAL_H
#define SFS_PRELOAD_REAL_H

#include <stddef.h>

/* clang-format off */
#define PL_REALS(S, F) \
	S(read, SYS_read) S(write, SYS_write) S(pread, SYS_pread64) S(pwrite, SYS_pwrite64) \
	S(readv, SYS_readv) S(writev, SYS_writev) S(preadv, SYS_preadv) S(pwritev, SYS_pwritev) \
	F(preadv2, pl_fb_preadv2) F(pwritev2, pl_fb_pwritev2) \
	F(__read_chk, pl_fb_abort) F(__pread_chk, pl_fb_abort) \
	S(lseek, SYS_lseek) \
	F(open, pl_fb_open) S(openat, SYS_openat) F(creat, pl_fb_creat) S(openat2, SYS_openat2) \
	S(open_by_handle_at, SYS_open_by_handle_at) \
	F(__open_2, pl_fb_open) S(__openat_2, SYS_openat) \
	F(mkstemp, pl_fb_nosys) F(mkostemp, pl_fb_nosys) F(mkstemps, pl_fb_nosys) F(mkostemps, pl_fb_nosys) \
	S(close, SYS_close) S(close_range, SYS_close_range) S(unshare, SYS_unshare) F(closefrom, pl_fb_closefrom) \
	S(dup, SYS_dup) F(dup2, pl_fb_dup2) S(dup3, SYS_dup3) S(fcntl, SYS_fcntl) \
	S(flock, SYS_flock) F(lockf, pl_fb_nosys) S(ioctl, SYS_ioctl) \
	F(stat, pl_fb_stat) S(fstat, SYS_fstat) F(lstat, pl_fb_lstat) S(fstatat, SYS_newfstatat) S(statx, SYS_statx) \
	F(__xstat, pl_fb_xstat) F(__fxstat, pl_fb_fxstat) F(__lxstat, pl_fb_lxstat) F(__fxstatat, pl_fb_fxstatat) \
	F(nftw, pl_fb_nosys) F(ftw, pl_fb_nosys) F(fts_open, pl_fb_null) F(fts64_open, pl_fb_null) \
	S(fsync, SYS_fsync) S(fdatasync, SYS_fdatasync) S(sync, SYS_sync) S(syncfs, SYS_syncfs) \
	S(sync_file_range, SYS_sync_file_range) \
	S(truncate, SYS_truncate) S(ftruncate, SYS_ftruncate) S(fallocate, SYS_fallocate) \
	F(posix_fallocate, pl_fb_posix_fallocate) \
	S(mmap, SYS_mmap) \
	S(copy_file_range, SYS_copy_file_range) S(sendfile, SYS_sendfile) S(splice, SYS_splice) \
	F(rename, pl_fb_rename) S(renameat, SYS_renameat) S(renameat2, SYS_renameat2) \
	F(link, pl_fb_link) S(linkat, SYS_linkat) F(unlink, pl_fb_unlink) S(unlinkat, SYS_unlinkat) \
	F(remove, pl_fb_remove) F(rmdir, pl_fb_rmdir) F(symlink, pl_fb_symlink) S(symlinkat, SYS_symlinkat) \
	F(mkdir, pl_fb_mkdir) S(mkdirat, SYS_mkdirat) F(mknod, pl_fb_mknod) S(mknodat, SYS_mknodat) \
	F(mkfifo, pl_fb_nosys) F(mkfifoat, pl_fb_nosys) F(__xmknod, pl_fb_xmknod) F(__xmknodat, pl_fb_xmknodat) \
	F(mkdtemp, pl_fb_null) \
	F(chmod, pl_fb_chmod) F(lchmod, pl_fb_nosys) S(fchmod, SYS_fchmod) F(fchmodat, pl_fb_fchmodat) \
	F(chown, pl_fb_chown) F(lchown, pl_fb_lchown) S(fchown, SYS_fchown) S(fchownat, SYS_fchownat) \
	S(setxattr, SYS_setxattr) S(lsetxattr, SYS_lsetxattr) S(fsetxattr, SYS_fsetxattr) \
	S(removexattr, SYS_removexattr) S(lremovexattr, SYS_lremovexattr) S(fremovexattr, SYS_fremovexattr) \
	F(utime, pl_fb_utime) F(utimes, pl_fb_utimes) S(utimensat, SYS_utimensat) F(futimesat, pl_fb_futimesat) \
	F(lutimes, pl_fb_nosys) F(futimes, pl_fb_nosys) F(futimens, pl_fb_futimens) \
	F(fork, pl_fb_fork) F(_Fork, pl_fb_fork) F(vfork, pl_fb_fork) F(clone, pl_fb_nosys) F(daemon, pl_fb_nosys) \
	F(forkpty, pl_fb_nosys) \
	F(posix_spawn, pl_fb_enosys) F(posix_spawnp, pl_fb_enosys) F(system, pl_fb_nosys) F(popen, pl_fb_null) \
	S(execve, SYS_execve) F(execv, pl_fb_execv) F(execvp, pl_fb_nosys) F(execvpe, pl_fb_nosys) \
	F(fexecve, pl_fb_fexecve) S(execveat, SYS_execveat) \
	S(exit, SYS_exit_group) S(_exit, SYS_exit_group) S(_Exit, SYS_exit_group) S(quick_exit, SYS_exit_group) \
	F(abort, pl_fb_abort) \
	F(pthread_cancel, pl_fb_enosys) F(pthread_testcancel, pl_fb_nothing) \
	F(sigaction, pl_fb_nosys) F(signal, pl_fb_nosys) F(__sysv_signal, pl_fb_nosys) F(sigset, pl_fb_nosys) F(siginterrupt, pl_fb_nosys) \
	S(setrlimit, SYS_setrlimit) S(prlimit, SYS_prlimit64) \
	S(socket, SYS_socket) S(socketpair, SYS_socketpair) S(accept, SYS_accept) S(accept4, SYS_accept4) \
	F(pipe, pl_fb_pipe) S(pipe2, SYS_pipe2) F(epoll_create, pl_fb_epoll_create) S(epoll_create1, SYS_epoll_create1) \
	S(eventfd, SYS_eventfd2) S(timerfd_create, SYS_timerfd_create) F(signalfd, pl_fb_nosys) \
	F(inotify_init, pl_fb_inotify_init) S(inotify_init1, SYS_inotify_init1) S(memfd_create, SYS_memfd_create) \
	S(sendmsg, SYS_sendmsg) S(sendmmsg, SYS_sendmmsg) S(recvmsg, SYS_recvmsg) S(recvmmsg, SYS_recvmmsg) \
	F(fopen, pl_fb_null) F(freopen, pl_fb_null) F(fdopen, pl_fb_null) F(tmpfile, pl_fb_null) F(fileno, pl_fb_nosys) \
	F(fopencookie, pl_fb_null) F(flockfile, pl_fb_nothing) F(funlockfile, pl_fb_nothing) \
	F(fwide, pl_fb_nosys) F(fgetwc, pl_fb_nosys) F(fgetwc_unlocked, pl_fb_nosys) F(fgetws, pl_fb_null) \
	F(fgetws_unlocked, pl_fb_null) F(__fgetws_chk, pl_fb_null) F(__fgetws_unlocked_chk, pl_fb_null) \
	F(fputwc, pl_fb_nosys) F(fputwc_unlocked, pl_fb_nosys) F(fputws, pl_fb_nosys) F(fputws_unlocked, pl_fb_nosys) \
	F(ungetwc, pl_fb_nosys) F(vfwprintf, pl_fb_nosys) F(__vfwprintf_chk, pl_fb_nosys) F(vfwscanf, pl_fb_nosys) \
	F(__isoc99_vfwscanf, pl_fb_nosys) F(__isoc23_vfwscanf, pl_fb_nosys) \
	F(vwprintf, pl_fb_nosys) F(__vwprintf_chk, pl_fb_nosys) F(putwchar, pl_fb_nosys) F(putwchar_unlocked, pl_fb_nosys) \
	F(stdout, pl_fb_null) F(fputc, pl_fb_nosys) F(fputc_unlocked, pl_fb_nosys) F(putchar, pl_fb_nosys) \
	F(putchar_unlocked, pl_fb_nosys) F(putw, pl_fb_nosys) F(puts, pl_fb_nosys) F(fputs, pl_fb_nosys) \
	F(fputs_unlocked, pl_fb_nosys) F(fwrite, pl_fb_null) F(fwrite_unlocked, pl_fb_null) F(__overflow, pl_fb_nosys) \
	F(fseek, pl_fb_nosys) F(fseeko, pl_fb_nosys) F(ftell, pl_fb_nosys) F(ftello, pl_fb_nosys) F(fgetpos, pl_fb_nosys) \
	F(fsetpos, pl_fb_nosys) F(rewind, pl_fb_nothing) F(putpwent, pl_fb_nosys) F(putgrent, pl_fb_nosys) \
	F(putspent, pl_fb_nosys) F(putsgent, pl_fb_nosys) F(addmntent, pl_fb_nosys) F(malloc_info, pl_fb_nosys) \
	F(argp_parse, pl_fb_enosys) F(argp_help, pl_fb_nothing) F(argp_state_help, pl_fb_nothing) \
	F(vfprintf, pl_fb_nosys) F(vprintf, pl_fb_nosys) F(__vfprintf_chk, pl_fb_nosys) F(__vprintf_chk, pl_fb_nosys) \
	F(setmntent, pl_fb_null) F(endmntent, pl_fb_nosys) F(backtrace_symbols_fd, pl_fb_nothing) F(login_tty, pl_fb_nosys) \
	F(fclose, pl_fb_nosys) F(pclose, pl_fb_nosys) F(vdprintf, pl_fb_nosys) F(__vdprintf_chk, pl_fb_nosys) \
	F(aio_read, pl_fb_nosys) F(aio_write, pl_fb_nosys) F(aio_fsync, pl_fb_nosys) F(lio_listio, pl_fb_nosys) \
	F(io_submit, pl_fb_io_submit) \
	F(io_uring_queue_init, pl_fb_raw_enosys) F(io_uring_queue_init_params, pl_fb_raw_enosys) \
	F(io_uring_queue_init_mem, pl_fb_raw_enosys) F(io_uring_setup, pl_fb_raw_enosys)
/* clang-format on */

#define PL_ENUM(name, fallback) PL_##name,
enum pl_real { PL_REALS(PL_ENUM, PL_ENUM) PL_REAL_COUNT };

extern void *pl_table[PL_REAL_COUNT] __attribute__((visibility("hidden")));
/* Look the function up, or its fallback; remember and return it. Never NULL. */
void *pl_resolve(int index) __attribute__((visibility("hidden"), cold));
/* Look up what a program may call while it holds locks of its own (a malloc calls mmap); everything, when volumes are served.
 */
void pl_resolve_early(int everything) __attribute__((visibility("hidden"), cold));

/*
 * The functions behind us that have these names, up to PL_NEXT_MAX, without dlsym, which old C libraries keep in a library of its own, and
 * which takes longer for one. NULL: there is none.
 */
#define PL_NEXT_MAX 8
void pl_elf_next(const char *const *names, int n, void **found) __attribute__((visibility("hidden"), cold));

static inline void *pl_real(int index)
{
	void *fn = __atomic_load_n(&pl_table[index], __ATOMIC_ACQUIRE);

	return __builtin_expect(fn != NULL, 1) ? fn : pl_resolve(index);
}

/* The real function with its declared type; REAL_AS for names that no header declares. */
#define REAL(name)	    ((__typeof__(name) *)pl_real(PL_##name))
#define REAL_AS(type, name) ((type)pl_real(PL_##name))

#endif
