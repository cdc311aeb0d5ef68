/* SPDX-License-Identifier: Apache-2.0 */
/* The volume and its agent: the agent's part of the conversation is played, its files are made by its own code (src/volume). */
#ifndef CRASH_AGENT_H
#define CRASH_AGENT_H

#include "control/root.h"

#define AGENT_SLOTS	  (64u + 26u) /* of a log; all but 64 are for records before a checkpoint is due */
#define AGENT_CHUNK_BYTES (24u * 4096)
#define AGENT_CHUNKS	  3u /* that there are before the process begins */
#define AGENT_FIRST_CHUNK 10u
#define AGENT_PAST	  0xa5 /* what these are full of, as if they had been used before */

/* Ends the test when err is negative. what: what could not be made. */
void agent_path_or_die(int err, const char *what);
/* Make control directory, a log and staging files in the empty file system. */
void agent_make_volume(void);
/* The library's process begins: nothing is leased. alone: nobody without the library has a file open, as far as the agent sees. */
void agent_start(bool alone);
void agent_stop(void);
/* A process is no more; nothing has been recovered yet. That happens when somebody asks for a file of its, as with the real agent. */
void agent_process_died(int which);
/* Staging files from this number on have not been leased. */
uint32_t agent_chunks_end(void);
/* A staging file that no lease names and that has no holes is given to the next client: none has anybody's bytes. A sentence, or NULL. */
const char *agent_pool_sound(void);
/* Open the volume for recovery. */
void agent_open_root(struct sfs_root *root);

/* The boot that the machine is in; a log of another one has gone through a power loss. */
extern uint8_t agent_boot;

#endif
