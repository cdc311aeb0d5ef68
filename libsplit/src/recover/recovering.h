/* SPDX-License-Identifier: Apache-2.0 */
/* The recovery of one log, which four files of this folder share: recover.c, records.c, apply.c and files.c. */
#ifndef SFS_RECOVERING_H
#define SFS_RECOVERING_H

#include "recover/cover.h"
#include "recover/lookup.h"
#include "recover/recover.h"
#include "recover/replay.h"
#include "recover/scan.h"

#define SFS_OPEN_TARGETS 256u
#define SFS_SIZE_LIMIT	 (UINT64_MAX >> 1)

/* A range to copy, kept back for a while: appends that follow each other become one copy. */
struct sfs_rec_range {
	uint32_t chunk;
	uint64_t off, stage_off, len;
};

/* What we know of one inode that a record named. */
struct sfs_rec_file {
	struct sfs_rec_file *next; /* hash chain */
	struct sfs_wanted id;
	bool leased;
	bool retired;	/* a newer DONE: nothing before counts */
	bool committed; /* a newer COMMIT: everything before was durable */
	bool wanted;
	bool touched;
	bool stripped;
	bool cut; /* a truncate was under way */
	uint64_t cut_at;
	int fd;
	uint32_t open_index;
	uint64_t size;
	struct sfs_cover cover;
	struct sfs_rec_range pending;
};

struct sfs_recovering {
	const struct sfs_root *root;
	const struct sfs_recover_how *how;
	struct sfs_why *why;
	struct sfs_lookup lookup;
	struct sfs_chunks chunks;
	struct sfs_rec_file **table;
	uint32_t table_size, nfiles;
	bool apply;	/* second pass */
	bool void_log;	/* emulated volume and another boot */
	bool same_boot; /* memory was never lost */
	bool full;	/* the file system is full: full.c */
	bool all_retired, all_committed;
	struct sfs_rec_file *open[SFS_OPEN_TARGETS];
	uint32_t next_open;
	void *buf;
	struct sfs_recovery sum;
	const struct sfs_record *gap_rec; /* of the call of copy_gap */
	struct sfs_rec_file *gap_file;
};

/* files.c: the place in the table where the inode is or belongs, and the inode, made where it is not there. NULL: no memory. */
struct sfs_rec_file **sfs_rec_slot(struct sfs_recovering *rv, uint64_t ino, uint32_t gen);
struct sfs_rec_file *sfs_rec_file_get(struct sfs_recovering *rv, uint64_t ino, uint32_t gen);
/* 0 with f->fd open, -ENOENT when the file does not exist any more. */
int sfs_rec_file_open(struct sfs_recovering *rv, struct sfs_rec_file *f);
void sfs_rec_file_close(struct sfs_recovering *rv, struct sfs_rec_file *f);
/* Says what failed with the file; returns err. */
int sfs_rec_fail(struct sfs_recovering *rv, const struct sfs_rec_file *f, int err, const char *what);

/* apply.c: a group whose file was found goes into it, where no newer record has been; what is kept back is written. */
int sfs_rec_apply(struct sfs_recovering *rv, struct sfs_rec_file *f, const struct sfs_record *rec, unsigned n);
int sfs_rec_flush(struct sfs_recovering *rv, struct sfs_rec_file *f);

/* full.c: a range into its file, also where the file system has no space for it. */
int sfs_rec_copy(struct sfs_recovering *rv, const struct sfs_chunk_ref *c, int target, const struct sfs_rec_range *p);
/* A record that may count names bytes of the staging file. */
void sfs_rec_named(struct sfs_chunk_ref *c, const struct sfs_record *rec);

/* records.c: what the scan of the log calls. */
int sfs_rec_done(void *ctx, const struct sfs_record *rec);
int sfs_rec_group(void *ctx, const struct sfs_record *rec, unsigned n);

#endif
