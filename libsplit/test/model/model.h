/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model test: random programs of file calls, played on the plain kernel and under the library; every result, errno and the
 * trees left behind must be the same. Operation i of program `seed` depends on those two numbers alone, so that operations can
 * be left out to find a short program that still fails.
 */
#ifndef SFS_TEST_MODEL_H
#define SFS_TEST_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SLOTS 6 /* places for descriptors */
#define NAMES 5 /* files f0 ... */

/* clang-format off */
#define OPS(X) /* name, weight */ \
	X(open, 14) X(close, 7) X(write, 14) X(pwrite, 12) X(writev, 3) X(read, 8) X(pread, 10) X(readv, 3) \
	X(lseek, 6) X(ftruncate, 4) X(truncate, 2) X(fsync, 3) X(fdatasync, 1) X(dup, 2) X(dup2, 2) X(setfl, 2) \
	X(rename, 3) X(unlink, 3) X(link, 1) X(fstat, 5) X(stat, 5) X(touch, 1) X(fallocate, 2) \
	X(map, 1) X(map_read, 3) X(map_write, 3) X(unmap, 1) X(copy, 2) X(sendfile, 1) X(stdio_append, 1) X(stdio_read, 1) \
	X(peek, 8) X(unpeek, 5) X(look, 4) X(patch, 9) X(patched, 4) X(tmpfile_link, 1) X(by_number, 1) X(fork, 1) X(end_peer, 1) X(exec, 1) X(spawn, 1)
/* clang-format on */

#define OP_ENUM(name, weight) OP_##name,
enum op_kind { OPS(OP_ENUM) OP_COUNT };

struct op {
	enum op_kind kind;
	bool by_peer;	    /* the forked process does it, while there is one */
	int slot, other;    /* descriptors */
	int name, new_name; /* files */
	uint64_t off, len;  /* where, how much */
	uint64_t choice;    /* of flags, modes, origins */
};

struct op op_make(uint64_t seed, int index);
void op_print(FILE *to, const struct op *op, int index);

/* Play operations first ... of the program in the working directory and write a line for each to descriptor 1. */
struct play {
	uint64_t seed;
	int first, count;
	const char *only; /* NULL, or a file with the indexes to play */
	int slots[SLOTS]; /* descriptors that were open before an exec, or -1 */
};
int play(struct play *p, char *const argv[]);

/* Run, compare and shrink. */
struct check {
	const char *self;    /* this program */
	const char *splitfs; /* the command line, or NULL: preload alone */
	const char *preload; /* the object to preload, when splitfs is NULL */
	const char *work;    /* a directory on the file system to test */
	const char *mode;
	uint64_t seed;
	int programs, length;
	const char *only; /* NULL, or the indexes of the operations to play */
};
int check(const struct check *c);

#endif
