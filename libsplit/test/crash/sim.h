/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be on the medium at a point of a trace: which bytes are durable for certain, and which versions each other cache line can
 * have.
 */
#ifndef CRASH_SIM_H
#define CRASH_SIM_H

#include "crash/record.h"

#define LINE 64u

/* A pending store of up to 8 bytes. */
struct pword {
	uint64_t value;
	uint32_t event; /* that made it */
	uint8_t word;	/* of the line */
	uint8_t mask;	/* which bytes */
	uint8_t kind;	/* EV_STORE, EV_NT or EV_KERNEL */
	uint8_t ino;
	uint8_t cpu;
};

struct pline {
	uint32_t line;
	uint32_t n, room;
	uint32_t flushed[CPUS]; /* so many words were stored when each processor last wrote the line back */
	struct pword *w;
};

#define VERSIONS_MAX 40
struct versions {
	uint32_t line;
	int n; /* the first one is what is certain, the last one everything */
	uint8_t bytes[VERSIONS_MAX][LINE];
	uint64_t hash[VERSIONS_MAX]; /* difference to the hash of the medium */
};

struct sim {
	const struct trace *t;
	uint8_t *durable;	   /* what is certain */
	uint8_t *work;		   /* the same, for recovery to work on */
	uint32_t used;		   /* blocks of both that are not zero */
	uint32_t pos;		   /* events of the trace that have happened */
	uint32_t meta_lo, meta_hi; /* metadata operations: committed, and done */
	uint64_t hash;		   /* of durable */
	int32_t *index;		   /* of the pending line, -1 */
	struct pline *lines;
	uint32_t nlines, room;
	struct versions *vs; /* of lines, for whoever enumerates; sim_room() */
	uint32_t vs_room;
};

void sim_init(struct sim *s);
/* Begin: the medium holds the first `used` blocks of `base`, whose hash is `hash`. */
void sim_begin(struct sim *s, const struct trace *t, const uint8_t *base, uint32_t used, uint64_t hash);
/* Everything that was stored is durable. */
void sim_settle_all(struct sim *s);
/* One event happens. With `all_durable` (a dying process, memory stays) stores are durable at once. */
void sim_step(struct sim *s, bool all_durable);

/* Room in s->vs for a version of each pending line. */
struct versions *sim_room(struct sim *s);
/* The event before which what the kernel stored is certain when the metadata operations up to `meta` are durable. */
uint32_t sim_committed(const struct sim *s, uint32_t meta);
/* What the line can be then; `few`: three versions will do. */
void sim_versions(const struct sim *s, const struct pline *l, uint32_t committed, bool few, struct versions *v);
/* The lines' words, in words: for a reproducer. */
uint64_t sim_line_hash(uint32_t line, const uint8_t *bytes);

#endif
