/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to the agent and from it (proto.h), with descriptors. */
#ifndef SFS_MESSAGE_H
#define SFS_MESSAGE_H

#include <sys/un.h>

#include "lease/volume.h"

/* Where the volume's agent listens. False: that name is too long. */
bool sfs_agent_address(const struct sfs_volume *vol, struct sockaddr_un *addr);
/* A connection to the volume's agent: a descriptor of ours, or a negative errno value. -EAGAIN: too many wait for it to accept theirs. */
int sfs_dial(struct sfs_volume *vol);
/* In that version of the protocol. fd: goes along, -1: none. 0, or a negative errno value. */
int sfs_msg_send(int sock, uint32_t version, const struct sfs_msg *m, int fd);
/*
 * Waits for one message, with up to nfds descriptors (-1 where there are fewer), which get numbers of ours. -EPROTO when it is of another
 * version than that one; 0: any.
 */
int sfs_msg_recv(int sock, uint32_t version, struct sfs_msg *m, int *fds, int nfds);

#endif
