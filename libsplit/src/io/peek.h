/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_PEEK_H
#define SFS_PEEK_H

#include <stdbool.h>

/*
 * Of all files: no snapshot is taken from here on, until it is called with false as often. Those that are there are
 * the caller's to save.
 */
void sfs_peek_bar(bool on);

#endif
