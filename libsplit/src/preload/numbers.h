/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that newer architectures (arm64) lack, because a newer call does all of it, get numbers that no call
 * has, so that the table needs no conditions; and those that are newer than the headers get theirs.
 */
#ifndef SFS_PRELOAD_NUMBERS_H
#define SFS_PRELOAD_NUMBERS_H

#include <sys/syscall.h>

#ifndef SYS_openat2
#error "kernel headers of Linux 5.9 or newer are needed"
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#endif
#ifndef SYS_removexattrat
#define SYS_removexattrat 466
#endif
#ifndef SYS_open
#define SYS_open	 (-1001)
#define SYS_creat	 (-1002)
#define SYS_dup2	 (-1003)
#define SYS_stat	 (-1004)
#define SYS_lstat	 (-1005)
#define SYS_fork	 (-1006)
#define SYS_vfork	 (-1007)
#define SYS_rename	 (-1008)
#define SYS_link	 (-1009)
#define SYS_unlink	 (-1010)
#define SYS_mkdir	 (-1011)
#define SYS_rmdir	 (-1012)
#define SYS_symlink	 (-1013)
#define SYS_mknod	 (-1014)
#define SYS_chmod	 (-1015)
#define SYS_chown	 (-1016)
#define SYS_lchown	 (-1017)
#define SYS_utime	 (-1018)
#define SYS_utimes	 (-1019)
#define SYS_futimesat	 (-1020)
#define SYS_pipe	 (-1021)
#define SYS_signalfd	 (-1022)
#define SYS_eventfd	 (-1023)
#define SYS_epoll_create (-1024)
#define SYS_inotify_init (-1025)
#endif

#endif
