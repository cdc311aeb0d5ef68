/* SPDX-License-Identifier: Apache-2.0 */
#include "base/holes.h"

#include <errno.h>
#include <unistd.h>

#include "base/sys.h"

off_t sfs_seek_data(int fd, off_t at)
{
	const off_t first = sys_lseek(fd, at, SEEK_DATA);
	off_t again;

	if (first == at || (first < 0 && first != -ENXIO))
		return first;
	again = sys_lseek(fd, at, SEEK_DATA);
	return first < 0 || (again < first && again != -ENXIO) ? again : first;
}

off_t sfs_seek_hole(int fd, off_t at)
{
	const off_t first = sys_lseek(fd, at, SEEK_HOLE);

	return first == at ? sys_lseek(fd, at, SEEK_HOLE) : first;
}
