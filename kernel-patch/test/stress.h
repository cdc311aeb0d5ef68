/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stress of EXT4_IOC_RELINK: the files, what their words have to be, and the one place where it is counted what went
 * wrong. The working directory is on the file system under test, env.block its block size.
 */
#ifndef STRESS_H
#define STRESS_H

#include "testlib.h"

/*
 * Groups of two files that relink among themselves. Those of the last group belong to two users without the right to
 * exceed their quota. Bystanders are relinked by nobody, and must not change.
 */
enum { FILES = 2, GROUPS = 4, LIMITED = GROUPS - 1, BYSTANDERS = 3 };
enum { FILE_SIZE = 8 * MIB, BYSTANDER_SIZE = 1 * MIB, FIRST_USER = 2001 };

enum counter {
	RELINKS,
	REFUSED, /* the donor is shorter now, too much at once, or pages stay pinned */
	NO_ROOM,
	AT_QUOTA,
	FORKS,
	FILLED, /* times that the file system was full */
	STORES,
	LOADS,
	BUS, /* behind the end of a file, or no block to be had for a store */
	TRUNCATES,
	PUNCHES,
	WRITES,
	DIRECT,
	WORDS, /* that were looked at */
	COUNTERS
};

/* What all processes see. */
struct stress {
	volatile bool stop;
	bool control; /* what is wrong now is meant to be */
	uint64_t wrong;
	uint64_t counters[COUNTERS];
};

extern struct stress *stress;

extern int group_fds[GROUPS][FILES], bystander_fds[BYSTANDERS];
extern uint8_t *group_maps[GROUPS][FILES], *bystander_maps[BYSTANDERS];

void count(enum counter c, uint64_t n);
/* Something is not as it has to be: counted, and told of the first ones. */
__attribute__((format(printf, 1, 2))) void wrong(const char *format, ...);

/* The word that belongs at a byte's place of a file of this group. */
uint64_t mark(unsigned int group, uint64_t at);
/* Looks at words of a group's file that others write to, or of a bystander; they begin at a byte's place of it. */
void look_at_moving(unsigned int group, const uint64_t *words, size_t n, uint64_t at);
void look_at_bystander(unsigned int number, const uint64_t *words, size_t n, uint64_t at);

/* Makes all files. */
void stress_begin(void);
/*
 * Nobody uses them any more: looks at all of them, read, mapped, and from the medium, and at what their owners are
 * charged.
 */
void stress_end(void);
/* Spoils two words; are they seen? */
bool stress_notices(void);

/* The processes: each does one thing until it is to stop. */
extern const unsigned int stress_workers;
__attribute__((noreturn)) void stress_work(unsigned int worker, uint64_t seed);

#endif
