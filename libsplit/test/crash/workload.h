/* SPDX-License-Identifier: Apache-2.0 */
/* Running a workload: a program's calls, made on the library as it is, over the explorer's kernel. */
#ifndef CRASH_WORKLOAD_H
#define CRASH_WORKLOAD_H

#include "crash/model.h"
#include "crash/record.h"

/*
 * A workload is a string of letters, one per operation (workload_letters(), workload_describe()), or "@NAME" for the trace of
 * an application (trace.c).
 */
#define WORKLOAD_LENGTHY                                                                                                       \
	5u /* from so many letters on it is sampled: explored from its first call, and what makes no sense is left out */
struct run {
	const char *workload;
	enum sfs_mode mode;
	enum kern_fs fs;
	bool dax;
	bool alone; /* nobody without the library has a file open: fsync and close are records */
	struct history h;
	struct trace t;
	uint64_t prefix[HISTORY_OPS + 1]; /* of the calls so far, hashed */
	uint32_t first;			  /* the call from which on crashes have not been explored with a shorter workload */
	uint8_t *base;			  /* the medium when it began */
	uint32_t base_blocks;
	uint64_t base_hash;
};

/* Record the run; false: the sequence makes no sense (an operation on what is not there). */
bool run_workload(struct run *r);
/* letters.c: all operations, and those that all sequences are made of. */
const char *workload_letters(void);
const char *workload_core(void);
const char *workload_describe(char letter);

/* process.c: the processes that use the library; each begins when it is first switched to. */
#define PROCESSES 2
void process_first(enum sfs_mode mode);
void process_switch(int to);
int process_now(void);
/* A turn of its service thread (sfs_service_turn()), on a processor of its own. */
bool process_serve(int which, bool timed);

struct app;
/* trace.c: make the calls of a trace; false: there is no such trace. */
bool trace_play(struct app *a, const char *name);
const char *const *trace_names(void);

const char *mode_name(enum sfs_mode mode);
const char *fs_name(enum kern_fs fs);
/* Is the workload worth a run with this provider? ext4-relink always, the others where they do something else. */
bool fs_worth(enum kern_fs fs, const char *workload);

#endif
