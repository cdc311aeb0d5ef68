/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls of a workload make of the tree, and what a crash may make of it. */
#ifndef CRASH_MODEL_H
#define CRASH_MODEL_H

#include "crash/kern.h"
#include "format/layout.h"

#define MODEL_NAMES 16u
#define MODEL_FILES 20u

struct model_file {
	uint64_t size;
	const uint8_t *blk[KERN_FILE_BLOCKS]; /* never changed; NULL: zeros */
};

struct model_name {
	char path[24]; /* below the root */
	int8_t file;   /* -1: no regular file */
	uint8_t type;  /* enum kern_type; KERN_FREE: no name */
	uint16_t mode;
};

struct model {
	struct model_name name[MODEL_NAMES];
	struct model_file file[MODEL_FILES];
	int nfiles;
};

/* One call: it leads from state i of the history to state i + 1. */
struct model_op {
	const char *what;
	int file;	   /* that it writes to or makes durable; -1 */
	uint64_t off, len; /* of a write */
	bool writes;
	bool shared; /* another process has had the file open too: the kernel may write, but in strict */
	bool syncs;  /* fsync, fdatasync, or O_SYNC: what `file` is then survives */
	bool names;  /* changes the tree */
	bool cuts;   /* truncates, allocates, or punches a hole */
	bool zeroes; /* truncates in the middle of a block: the rest of the block may be zeros before the size is less */
	bool dies;   /* no call: the first process dies */
	bool parts;  /* the kernel does it in several steps: a crash may leave some of its bytes old and some new */
};

#define HISTORY_OPS 700u
struct history {
	enum sfs_mode mode;
	bool dax;
	uint32_t n;
	struct model *state; /* n + 1 */
	struct model_op op[HISTORY_OPS];
};

void model_reset(void); /* contents of earlier histories go */
int model_create(struct model *m, const char *path, mode_t mode);
struct model_name *model_find(struct model *m, const char *path);
void model_write(struct model *m, int file, uint64_t off, const void *src, uint64_t n);
void model_truncate(struct model *m, int file, uint64_t size);
void model_punch(struct model *m, int file, uint64_t off, uint64_t n);

enum crash_kind { CRASH_KILL, CRASH_POWER };

/*
 * Is the file system, as recovery left it, what the mode allows when `done` calls had returned (and one more was under way)? NULL, or
 * a sentence that says what is wrong.
 */
const char *model_check(const struct history *h, enum crash_kind kind, uint32_t done, bool in_flight);

#endif
