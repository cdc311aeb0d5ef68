/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open that this library makes is announced to the agent where somebody stages bytes: the kernel asks the agent before the file is open, and
 * what the agent does not find here it takes for an open by the program itself, of which the library knows nothing (format/layout.h, agent/listener.c).
 */
#ifndef SFS_OPENING_H
#define SFS_OPENING_H

#include <stdint.h>

/*
 * Where it is announced that this thread opens a file; NULL: nobody need know. What is opened in a handler meanwhile takes it back, and the agent looks
 * at the thread. A jump out of the open leaves it: until the thread's next one its program's own opens are taken for ours.
 */
struct sfs_opening {
	uint32_t *place;
	uint32_t forks; /* sfs.forks: the child of a handler's fork does not have that memory */
};
struct sfs_opening sfs_opening(void);
void sfs_opened(struct sfs_opening o);

#endif
