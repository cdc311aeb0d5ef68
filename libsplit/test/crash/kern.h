/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system on persistent memory that lives in the explorer: directories, inodes with blocks, a journal. The library's system
 * calls (base/sys.h) and recovery's calls of the C library are led to it, so that a crash state is a few copied structures
 * and not a mount.
 *
 * All metadata is one structure, `struct kern_meta`. Every change of it is one journalled operation, reported to the recorder; what a
 * power loss leaves is the structure as it was after some prefix of these operations (jbd2 and the XFS log promise no less, and
 * no more). File content is in blocks of `kern.pm`, persistent memory, in which the library's mappings store directly.
 */
#ifndef CRASH_KERN_H
#define CRASH_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KERN_BLOCK	 4096u
#define KERN_BLOCKS	 8192u /* of persistent memory; block 0 is none */
#define KERN_INODES	 40u
#define KERN_FILE_BLOCKS 64u
#define KERN_ENTRIES	 48u
#define KERN_NAME	 22u
#define KERN_ROOT_INO	 1u
#define KERN_DEV	 0x1234u
#define KERN_FDS	 256
#define KERN_FD_BASE	 512

enum kern_type { KERN_FREE = 0, KERN_FILE, KERN_DIR, KERN_LINK };

struct kern_inode {
	uint8_t type;
	uint8_t nlink;
	uint16_t mode;
	uint32_t gen;
	uint64_t size;
	uint16_t blk[KERN_FILE_BLOCKS]; /* 0: a hole */
};

struct kern_entry {
	uint8_t dir; /* inode numbers; 0: the entry is free */
	uint8_t ino;
	char name[KERN_NAME];
};

struct kern_meta {
	struct kern_inode inode[KERN_INODES];
	struct kern_entry entry[KERN_ENTRIES];
	uint32_t next_gen;
};

/* By what blocks can be moved. */
enum kern_fs { KERN_EXT4_RELINK, KERN_XFS_REFLINK, KERN_XFS_EXCHANGE, KERN_EXT4, KERN_FS_KINDS };

struct kern_fd {
	uint8_t kind; /* 0 free, else enum kern_fd_kind */
	uint8_t ino;
	int flags;
	struct kern_ofd *ofd;
};

struct kern {
	struct kern_meta m;
	uint8_t *pm;
	uint32_t next_block; /* blocks are not used again while a workload runs, as a journal would not before it commits */
	enum kern_fs fs;
	bool dax;
	/* Told of every change, NULL while nobody records. touched: a bit for each inode. */
	void (*on_meta)(uint64_t touched);
	/* Before the kernel itself stores to content; the bytes are in `src` (NULL: zeros). */
	void (*on_data)(uint32_t ino, uint8_t *dst, const void *src, size_t n);
	/* fsync of one inode; ino 0: syncfs. `site` is where it was called from. */
	void (*on_sync)(uint32_t ino, void *site);
	/* The journal is committed up to the last operation on the inode: a page of a MAP_SYNC mapping becomes writable. */
	void (*on_commit)(uint32_t ino);
	/* Before recovery or a check changes pm or reads it (lines are what a crash state is made of). */
	void (*on_touch)(const uint8_t *p, size_t n, bool write);
};

extern struct kern kern;
/* Are system calls ours now? */
extern bool kern_on;

/* An empty file system; pm has been zeroed by the caller up to next_block. */
void kern_format(enum kern_fs fs, bool dax);
/* All descriptors and mappings go, as when the process dies; files without a name go with them. */
void kern_forget_process(void);
/* Make the mappings show what the block tables say. */
void kern_remap(uint32_t ino);

/* Returns what the kernel would: a negative errno value. site: for calls that are worth a mutant. */
long kern_call(long n, long a, long b, long c, long d, long e, long f, void *site);

/* kern.c: parts of it, all of them negative errno values */
int kern_lookup(int dir, const char *path, bool follow);
int kern_open(int dirfd, const char *path, int flags, mode_t mode);
int kern_rename(int olddir, const char *from, int newdir, const char *to, unsigned flags);
int kern_link(int olddir, const char *from, int newdir, const char *to);
int kern_unlink(int dir, const char *path, int flags);
int kern_mkdir(int dir, const char *path, mode_t mode);
int kern_symlink(const char *target, int dir, const char *path);
int kern_truncate(uint32_t ino, off_t size);
int kern_fallocate(uint32_t ino, int mode, off_t off, off_t len);
ssize_t kern_pwrite(uint32_t ino, const void *src, size_t n, off_t off);
ssize_t kern_pread(uint32_t ino, void *dst, size_t n, off_t off);
int kern_clone(uint32_t from, off_t from_off, uint32_t to, off_t to_off, uint64_t len);
int kern_relink(uint32_t from, off_t from_off, uint32_t to, off_t to_off, uint64_t len, uint64_t size);
int kern_exchange(uint32_t a, off_t a_off, uint32_t b, off_t b_off, uint64_t len);
off_t kern_seek_data(uint32_t ino, off_t off, bool data);
int kern_chmod(uint32_t ino, mode_t mode);
/* The directory of a path and its last component. */
int kern_parent(int dir, const char *path, char name[KERN_NAME]);

/* kern_fd.c: the descriptor table */
int kern_fd_new(int kind, uint32_t ino, int flags);
struct kern_fd *kern_fd_get(int fd);
uint32_t kern_fd_ino(int fd); /* 0: none */
bool kern_is_open(uint32_t ino);

/* kern_map.c: mappings, by the arguments and results of the system calls. kern_remap(): after a change of the file's blocks */
long kern_map(void *at, size_t len, int prot, int flags, int fd, off_t off);
long kern_unmap(void *p, size_t len);
long kern_map_move(void *from, size_t len, void *to);
long kern_map_resize(void *p, size_t old, size_t len);
void kern_map_forget(void);
/* The offset in pm of an address in a mapping, and how many bytes follow in the same block; false: no such mapping. */
bool kern_address(const void *p, uint64_t *at, size_t *n, uint32_t *ino);
/* The process is about to store there. */
void kern_fault(const void *p, size_t n);

enum kern_fd_kind { KERN_FD_FILE = 1, KERN_FD_SOCKET, KERN_FD_EVENT };

/* agent.c: a message of the library, and the reply to the last one. */
struct msghdr;
long agent_sendmsg(int fd, const struct msghdr *h);
long agent_recvmsg(int fd, struct msghdr *h);
/* Is there something to receive that the agent wants? */
bool agent_asks(int fd);
/* Or is there a reply? */
bool agent_readable(int fd);

/* Does the directory belong to the control directory? (oracle.c) */
bool kern_below_control(uint32_t dir);
/* An inconsistency of the file system after recovery: a sentence, or NULL. */
const char *kern_fsck(void);

#endif
