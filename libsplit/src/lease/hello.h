/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of the conversation with an agent: which version of the protocol, a log, the sockets. */
#ifndef SFS_HELLO_H
#define SFS_HELLO_H

#include "lease/volume.h"

/*
 * HELLO on a fresh connection, and its answer; resume is the log this process already holds, or 0. agent.request held. 0, or a negative errno
 * value; -EPROTONOSUPPORT: library and agent have no version in common, which is not asked again for a second.
 */
int sfs_hello(struct sfs_volume *vol, int proof_fd, uint32_t resume);
/*
 * The same of a process that has no log, without a wait for an agent that does not answer: -EAGAIN while one may be about to come, for as
 * long as agent_wait_ms says. Then that is over, until sfs_volume_forget().
 */
int sfs_hello_first(struct sfs_volume *vol, int proof_fd);
/*
 * PEEK: the table's descriptor, -1 where none came, -EAGAIN while no agent is there, -ETIMEDOUT from one that does not answer, or another negative
 * errno value.
 */
int sfs_hello_peek(struct sfs_volume *vol, int proof_fd);
/* One line on standard error, once per volume: the mode's guarantee is at stake and the user has to know. */
void sfs_hello_complain(struct sfs_volume *vol, int err);

#endif
