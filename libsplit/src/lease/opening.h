/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open that this library makes is announced to the agent where somebody stages bytes: the kernel asks the agent before the file is open, and
 * what the agent does not find here it takes for an open by the program itself, of which the library knows nothing (format/layout.h, agent/listener.c).
 */
#ifndef SFS_OPENING_H
#define SFS_OPENING_H

#include <stdint.h>

/* Where it is announced that this thread opens a file; NULL: nobody need know. An open that follows in a handler takes the announcement back. */
uint32_t *sfs_opening(void);
void sfs_opened(uint32_t *place);

#endif
