/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_TEST_MODEL_PERFORM_H
#define SFS_TEST_MODEL_PERFORM_H

#include "model.h"

#define LINE 120 /* bytes of a result */

extern int fds[SLOTS]; /* -1: none */
extern bool together;  /* two processes run now */

/* One operation of this process; its result in line. */
void perform(const struct op *made, int index, char *line);
bool any_mapped(void);

#endif
