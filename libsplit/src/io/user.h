/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program: it is read and written inside sfs_try() and with nothing held, and it may be none. */
#ifndef SFS_USER_H
#define SFS_USER_H

#include "base/fault.h"
#include "base/iov.h"

/* The length of all pieces, as sfs_iov_total() counts it; -EFAULT also where the iovec itself is no memory. */
ssize_t sfs_user_total(const struct iovec *iov, int cnt);
/* The next `total` bytes of it to `to`, memory of ours. Returns how many there are before the first that can't be read. */
size_t sfs_user_gather(struct sfs_cursor c, uint8_t *to, size_t total);
/*
 * Which byte of the next `total` ones did the fault hit? `total`: none of them.
 */
size_t sfs_user_offset(struct sfs_cursor c, size_t total, const struct sfs_fault *f);
/* Memory of ours for n bytes, or NULL; sfs_user_free() gives it back. */
uint8_t *sfs_user_alloc(size_t n);
void sfs_user_free(uint8_t *p, size_t n);

#endif
