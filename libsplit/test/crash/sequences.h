/* SPDX-License-Identifier: Apache-2.0 */
/* The list of workloads; see struct run for how one is written. */
#ifndef CRASH_SEQUENCES_H
#define CRASH_SEQUENCES_H

#include <stdint.h>

uint32_t sequences(void); /* how many there are */
const char *sequence(uint32_t i);

/* Each of these adds some, which come in the order in which they were added. */
void sequences_all(const char *letters, unsigned length); /* of that length, of these letters */
void sequences_sampled(unsigned length, unsigned how_many, uint64_t seed);
void sequences_lengthy(unsigned how_many, uint64_t seed); /* WORKLOAD_LENGTHY to 12 operations */
void sequences_named(void);    /* those written down: of threads, of zero-copy, of staging files, and what was found */
void sequences_for_bugs(void); /* what looks for planted bugs */
void sequences_traces(void);   /* of programs */

#endif
