/* SPDX-License-Identifier: Apache-2.0 */
#include "recover/holes.h"

#include <errno.h>
#include <unistd.h>

static off_t ask(int fd, off_t at, int whence)
{
	const off_t to = lseek(fd, at, whence);

	return to < 0 ? -errno : to;
}

off_t sfs_seek_data(int fd, off_t at)
{
	const off_t first = ask(fd, at, SEEK_DATA);
	off_t again;

	if (first == at || (first < 0 && first != -ENXIO))
		return first;
	again = ask(fd, at, SEEK_DATA);
	return first < 0 || (again < first && again != -ENXIO) ? again : first;
}

off_t sfs_seek_hole(int fd, off_t at)
{
	const off_t first = ask(fd, at, SEEK_HOLE);

	return first == at ? ask(fd, at, SEEK_HOLE) : first;
}
