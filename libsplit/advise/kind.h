/* SPDX-License-Identifier: Apache-2.0 */
/* Can a program load a preloaded library at all? */
#ifndef SFS_ADVISE_KIND_H
#define SFS_ADVISE_KIND_H

#include "advise.h"

/* path as for openat(2). ADV_NO_PROGRAM: nothing is against it, or it can't be read. */
enum adv_program adv_kind(int dirfd, const char *path) __attribute__((visibility("hidden")));

#endif
