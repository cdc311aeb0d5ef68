/* SPDX-License-Identifier: Apache-2.0 */
/* What a CXL memory device says of itself where the kernel says nothing of it: in its PCI configuration space. */
#ifndef SFS_CXL_H
#define SFS_CXL_H

#include <stdbool.h>

/*
 * Do the device and the port above it take part in the global persistent flush, by which a platform empties caches and buffers into the
 * device when the power fails? nvdimm: the directory of its persistent part in /sys/devices (pmemN). False also where root alone may read that.
 */
bool sfs_cxl_gpf(const char *nvdimm);

#endif
