/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_SERVICE_H
#define SFS_SERVICE_H

#include <stdbool.h>

/*
 * What the service thread does when it wakes up: it answers the agent, and when `timed` (the delay is over) it relinks. True:
 * something could not be done yet. The crash explorer plays the thread.
 */
bool sfs_service_turn(bool timed);
/* And every few milliseconds, for programs without the library that have files open (sfs_outside()). */
void sfs_service_show(void);

#endif
