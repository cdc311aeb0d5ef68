/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) */
/*
 * EXT4_IOC_REOPEN: open a file that is open already, once more and by name.
 *
 * The ioctl is made on a descriptor of the file.  It does what openat(2) does,
 * for no more access than that descriptor has, and returns a new descriptor;
 * only, programs that guard the opening of files (fanotify permission events)
 * are not asked: whoever has a descriptor has passed them, or was given it.
 * When the name leads to another file nothing is opened (ESTALE).
 *
 * ext4_reopen.md describes the call in full.
 */
#ifndef _UAPI_LINUX_EXT4_REOPEN_H
#define _UAPI_LINUX_EXT4_REOPEN_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXT4_REOPEN_VERSION	1

struct ext4_reopen {
	__u32	version;	/* EXT4_REOPEN_VERSION */
	/*
	 * of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_APPEND, O_CLOEXEC,
	 * O_DSYNC, O_LARGEFILE, O_NOCTTY, O_NONBLOCK, O_SYNC
	 */
	__u32	flags;
	__s32	dirfd;		/* where path begins, or AT_FDCWD */
	__u32	reserved;	/* 0 */
	__u64	path;		/* address of the name */
};

#define EXT4_IOC_REOPEN		_IOW('f', 121, struct ext4_reopen)

#endif /* _UAPI_LINUX_EXT4_REOPEN_H */
