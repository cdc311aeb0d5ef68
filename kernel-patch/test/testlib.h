/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Small things the tests of relink share: checks, cases that run in a process of their own and print TAP lines, and files
 * whose every byte is known.
 */
#ifndef TESTLIB_H
#define TESTLIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../uapi/ext4_relink.h"

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

#define SKIPPED 77
#define KIB	1024UL
#define MIB	(1024 * KIB)

/* A failed check ends the case; skip() ends it without a verdict. */
#define check(condition, ...)                                                                                                  \
	do {                                                                                                                   \
		if (!(condition))                                                                                              \
			fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                                     \
	} while (0)
__attribute__((noreturn, format(printf, 4, 5))) void fail(const char *file, int line, const char *what, const char *format,
							  ...);
__attribute__((noreturn, format(printf, 1, 2))) void skip(const char *format, ...);
/* What a case found out, as a comment line. */
__attribute__((format(printf, 1, 2))) void note(const char *format, ...);

struct test_case {
	const char *name;
	void (*run)(void);
};

/* What the tests run on; set by main(). */
extern struct environment {
	const char *dir;     /* on the file system under test, the working directory */
	uint64_t seed;	     /* of all random choices */
	unsigned long ops;   /* of the random test */
	unsigned long block; /* the file system's block size */
	bool dax;	     /* files there are DAX */
	char sysfs[128];     /* /sys/fs/ext4_splitfs/DEVICE */
} env;

/* Numbers that depend on the seed alone. */
uint64_t random_number(uint64_t *state);

/* Reads a number from a file below env.sysfs, or writes one; false if there is none. */
bool sysfs_read(const char *attribute, unsigned long *value);
bool sysfs_write(const char *attribute, unsigned long value);

/* What a relink asks for, of which one can be made to fail; the numbers are the module's (EXT4_SIM_* in the last patch). */
enum {
	FAIL_MEMORY = 0x01,
	FAIL_IO = 0x02,
	FAIL_JOURNAL = 0x04,
	FAIL_QUOTA = 0x08,
	FAIL_SPACE = 0x10,
	FAIL_TREE = 0x20,
	FAIL_ABORT = 0x40, /* access to a block, and with it the whole journal */
	FAIL_UNDONE = 0x3f /* all but the last: nothing has changed afterwards */
};
/*
 * Of the next relinks' calls of these kinds the call'th fails, once, and then the again'th of those that follow (0: no other).
 * False if this module cannot be made to fail.
 */
bool fail_call(unsigned int kinds, unsigned int call, unsigned int again);
/* Has the last of them failed? */
bool has_failed(void);

/*
 * A file and what it should hold. Blocks of its content are made by file_write() from a tag, so that a byte in the wrong place,
 * of the wrong file or of the wrong age is seen.
 */
struct file {
	const char *name;
	int fd;
	uint8_t *bytes; /* what it should hold, room bytes; zero behind size */
	uint64_t size;
	uint64_t room;
};

/* Creates an empty file (an old one of this name goes) with a model of up to room bytes. */
struct file file_new(const char *name, uint64_t room);
void file_write(struct file *f, uint64_t offset, uint64_t length, unsigned int tag);
/* The same through a shared mapping; the range lies within the size. */
void file_store(struct file *f, uint64_t offset, uint64_t length, unsigned int tag);
void file_allocate(struct file *f, uint64_t offset, uint64_t length); /* unwritten; extends */
void file_punch(struct file *f, uint64_t offset, uint64_t length);
void file_truncate(struct file *f, uint64_t size);
/* Compares size and content with the model. */
void file_verify(const struct file *f, const char *when);
/*
 * The same for a range through a mapping of the file that has been there all the time, as far as there are pages;
 * behind the size they hold zeros.
 */
void file_verify_mapping(const struct file *f, const uint8_t *map, uint64_t offset, uint64_t length, const char *when);
void file_free(struct file *f);
/* The blocks that lie in [offset, offset + length): allocated ones, or of the unwritten ones only; and how many extents. */
uint64_t file_blocks(const struct file *f, uint64_t offset, uint64_t length, bool unwritten);
unsigned long file_extents(const struct file *f);
struct stat file_stat(const struct file *f);

/* The call itself: 0 or an errno. */
int relink_call(int target, struct ext4_relink *r);
struct ext4_relink relink_args(const struct file *donor, uint64_t donor_offset, uint64_t target_offset, uint64_t length);
/*
 * The model's relink: moves in the models what the call should have moved, for the moved bytes. Holes of the donor are looked up
 * before the call with relink_map(), one flag per block of the range; NULL will do where they are not skipped.
 */
bool *relink_map(const struct file *donor, uint64_t offset, uint64_t length);
void relink_model(struct file *target, struct file *donor, const struct ext4_relink *r, const bool *allocated);
/* Call, model and comparison of both files in one; returns what the call returned, for 0 with r filled in. */
int relink_checked(struct file *target, struct file *donor, struct ext4_relink *r);

/* The cases, each list in a file of its own; they end with an empty name. */
extern const struct test_case semantics_cases[], edge_cases[], refusal_cases[], mapping_cases[], space_cases[], limit_cases[],
	exchange_cases[], fault_cases[], random_cases[], changes_cases[], changes_race_cases[], crash_cases[],
	crashed_cases[];

#endif
