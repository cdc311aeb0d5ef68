/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that newer architectures (arm64) do not have, because a newer call does all of it: so that tables and switches need no
 * conditions, they get numbers that no call has. syscall(2) with a negative number is the kernel's to refuse.
 */
#ifndef SFS_PRELOAD_NUMBERS_H
#define SFS_PRELOAD_NUMBERS_H

#include <sys/syscall.h>

#ifndef SYS_open
#define SYS_open      (-1001)
#define SYS_creat     (-1002)
#define SYS_dup2      (-1003)
#define SYS_stat      (-1004)
#define SYS_lstat     (-1005)
#define SYS_fork      (-1006)
#define SYS_vfork     (-1007)
#define SYS_rename    (-1008)
#define SYS_link      (-1009)
#define SYS_unlink    (-1010)
#define SYS_mkdir     (-1011)
#define SYS_rmdir     (-1012)
#define SYS_symlink   (-1013)
#define SYS_mknod     (-1014)
#define SYS_chmod     (-1015)
#define SYS_chown     (-1016)
#define SYS_lchown    (-1017)
#define SYS_utime     (-1018)
#define SYS_utimes    (-1019)
#define SYS_futimesat (-1020)
#endif

#endif
