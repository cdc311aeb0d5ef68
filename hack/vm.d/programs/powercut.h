/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workload of the power cuts and what it should leave behind. Operation i of a worker follows from its seed and from the
 * operations before it alone, so the checker needs to know only how many of them were acknowledged.
 */
#ifndef POWERCUT_H
#define POWERCUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS 6 /* names f0 to f5, each there or not; the last one is for large files */

enum kind { CREATE, APPEND, APPENDV, OVERWRITE, CROSS, BEYOND, TRUNCATE, SYNC, RENAME, UNLINK, REOPEN };

struct op {
	enum kind kind;
	int slot, to;	 /* to: RENAME's new name */
	uint64_t off;	 /* writes; TRUNCATE: the new size */
	size_t len;	 /* writes */
	bool data_only;	 /* SYNC: fdatasync */
	bool sequential; /* APPEND: by lseek and write instead of pwrite */
	size_t split;	 /* APPENDV: bytes in the first piece */
};

/* What a write or truncation did to a file since it was synced last. */
struct change {
	uint64_t op, off, len;
	uint64_t size; /* of the file, afterwards */
	bool truncate;
};

/* One file, whatever its name. Kept after its removal while a crash could still bring it back. */
struct object {
	uint8_t *data;
	uint64_t size, room;
	uint64_t born, died; /* operations; died: UINT64_MAX while it lives */
	uint8_t *synced;     /* content at the last fsync */
	uint64_t synced_size;
	bool ever_synced;
	struct change *changes; /* since then */
	size_t nchanges, changes_room;
};

/* A change of names. */
struct renaming {
	uint64_t op;
	int slot;
	struct object *object; /* which the name has afterwards, or NULL */
};

struct model {
	uint64_t seed, random, ops; /* ops: how many are applied */
	bool track;		    /* keep what a posix volume may legally fall back to */
	struct object *slot[SLOTS];
	struct object **objects;
	size_t nobjects, objects_room;
	struct object *base[SLOTS]; /* names that no crash can take back */
	uint64_t floor;		    /* operations from which on names may be lost */
	struct renaming *names;	    /* since then */
	size_t nnames, names_room;
};

void model_init(struct model *m, uint64_t seed, bool track);
void model_free(struct model *m);
/* The next operation, without applying it. */
struct op model_next(struct model *m);
void model_apply(struct model *m, const struct op *op);
/* The byte that operation `op` writes at an offset of a file. */
uint8_t model_byte(uint64_t seed, uint64_t op, uint64_t off);
const char *model_kind(enum kind kind);

/* Compares a directory with what the mode promises after `acked` operations; says on standard error what is wrong. */
bool oracle_strict(const char *dir, uint64_t seed, uint64_t acked);
bool oracle_sync(const char *dir, uint64_t seed, uint64_t acked);
bool oracle_posix(const char *dir, uint64_t seed, uint64_t acked);

/*
 * The worker that exchanges blocks of two files, in the working directory; or one that only makes the files as they would be after
 * `limit` operations, on any file system.
 */
bool exchange_load(volatile uint64_t *acked, uint64_t seed, uint64_t limit, bool pretend);
bool exchange_check(uint64_t seed, uint64_t acked);

#endif
