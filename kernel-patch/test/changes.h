/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of EXT4_IOC_CHANGES share: the call, a map, and moments in which the file system is frozen. */
#ifndef CHANGES_H
#define CHANGES_H

#include "../uapi/ext4_changes.h"
#include "testlib.h"

/* The smallest unit that there is on the processors that these tests run on. */
#define UNIT 4096UL

/* The call: 0 or an errno. */
int changes_call(int fd, unsigned int operation, struct ext4_changes *c);
/* Begins to track, or skips the case where there is no such call. */
void changes_start(int fd);
/* Takes the map: 8 bytes for each 64 units. Does not check, so that it can be called while the file system is frozen. */
int changes_take(int fd, void *map, unsigned long bytes, uint64_t *marked, unsigned long *units);
static inline bool changes_has(const uint8_t *map, unsigned long unit)
{
	return map[unit / 8] >> unit % 8 & 1;
}

/* Nobody may end between the two. */
int freeze(int fd);
int thaw(int fd);

#endif
