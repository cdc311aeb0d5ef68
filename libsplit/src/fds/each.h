/* SPDX-License-Identifier: Apache-2.0 */
/* All descriptors of the process, as the kernel lists them. */
#ifndef SFS_FDS_EACH_H
#define SFS_FDS_EACH_H

#include <stdbool.h>

/* Until stop() returns true, and then 1; 0 after all of them; or a negative errno value. Among them are the library's own, and one for the list. */
int sfs_fds_each(bool (*stop)(int fd, void *arg), void *arg);

#endif
