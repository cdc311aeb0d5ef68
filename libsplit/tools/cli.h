/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of `splitfs` share. */
#ifndef SFS_CLI_H
#define SFS_CLI_H

#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "recover/recover.h"
#include "control/root.h"
#include "control/store.h"
#include "control/why.h"

#define EXIT_USAGE 2

struct command {
	const char *name;
	const char *summary;
	const char *help;
	/* argv[0] is the subcommand. Returns the exit status. */
	int (*run)(int argc, char **argv);
};

extern const struct command cmd_prepare, cmd_recover, cmd_status, cmd_top, cmd_memory, cmd_agent, cmd_run, cmd_advise;

/* "splitfs: SENTENCE" on standard error; returns 1. */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for wrong usage; returns 2. */
int cli_usage(const struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_help(const struct command *c);

/* A number with an optional K, M, G or T (binary). False when it is none or too large. */
bool cli_bytes(const char *s, uint64_t *v);
/* Four digits at most, and the unit: 0, 999, 1.2K, 34M. base: 1000 or 1024. */
void cli_amount(char out[16], uint64_t n, unsigned base);

/* How wide the terminal is that `out` writes to; 0: it is none. */
unsigned cli_columns(FILE *out);
/* How much of a text goes into a line of `room` columns (0: without end): whole words. */
size_t cli_line_length(const char *text, size_t room);
/* A line of text. On a terminal that has no room for it, it goes on in further lines, `indent` columns from the left. */
void cli_paragraph(FILE *out, unsigned indent, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Progress on standard error when the work has taken a second: one line that changes on a terminal, elsewhere a line now and then. */
struct cli_progress {
	pthread_t thread;
	pthread_mutex_t lock; /* of all that follows but `next` */
	pthread_cond_t wake;
	bool running, end, tty, shown;
	uint64_t start, next; /* ms */
	char text[128];
};
void cli_progress_init(struct cli_progress *p, const char *what);
/* How far the work is by now; cheap enough for every step of it. */
void cli_progress(struct cli_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cli_progress_end(struct cli_progress *p);
/* For struct sfs_recover_how; ctx is a struct cli_progress. */
void cli_recover_progress(void *ctx, const struct sfs_recovery *so_far);

/* Options of the pool, common to prepare, agent and run: values for getopt_long. */
enum {
	OPT_POOL = 256,
	OPT_CHUNK,
	OPT_LOG,
	OPT_GATE_FD,
	OPT_LOG_SPACE,
	OPT_CLIENT_CHUNKS,
	OPT_AGENTS_DIR,
	OPT_LISTEN_FD,
	OPT_JSON,
	OPT_FILL_LOCK,
	OPT_FILL_PERCENT,
	OPT_REPORT_AFTER,
	OPT_UNSERVED,
	OPT_PROTECT,
	OPT_UNSERVED_BY,
	OPT_PROVIDER,
	OPT_PRIVATE,
	OPT_MODE,
	OPT_DIR,
	OPT_LIBRARY,
	OPT_ONCE,
	OPT_ROOT,
	OPT_INTERVAL
};
/* False, with the message printed, when a pool does not fit its chunks. */
bool cli_check_chunk(const struct command *c, uint64_t chunk_bytes);

#endif
