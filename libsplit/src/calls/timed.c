/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are timed: one of many (record/latency.h). */
#include "record/latency.h"
#include "files/inode.h"
#include "io/io.h"
#include "calls/calls.h"

ssize_t sfs_timed_read(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off)
{
	const struct sfs_log *log = &ofd->inode->vol->log;
	const uint64_t begun = sfs_timing_begin(false);
	const ssize_t r = sfs_read_window(ofd, fd, buf, n, off) ? (ssize_t)n : sfs_read(fd, buf, n, off);

	if (r > 0)
		sfs_timing_end(log, SFS_LATENCY_read, begun);
	return r;
}

/* Another thread may make the file longer meanwhile: then an overwrite is counted as an append. */
ssize_t sfs_timed_write(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off)
{
	const struct sfs_inode *in = ofd->inode;
	const struct sfs_log *log = &in->vol->log;
	const uint64_t size = load_acquire(&in->size), begun = sfs_timing_begin(false);
	const bool quick = off < 0 ? sfs_append(ofd, fd, buf, n) : sfs_store(ofd, fd, buf, n, off);
	const ssize_t r = quick ? (ssize_t)n : sfs_write(fd, buf, n, off);

	if (r > 0)
		sfs_timing_end(log, load_acquire(&in->size) > size ? SFS_LATENCY_append : SFS_LATENCY_overwrite, begun);
	return r;
}

int sfs_timed_fsync(int fd, bool data_only)
{
	struct sfs_ofd *ofd = sfs_known(fd);
	const uint64_t begun = sfs_timing_begin(true);
	const int r = sfs_fsync(fd, data_only);

	if (r == 0 && ofd)
		sfs_timing_end(&ofd->inode->vol->log, SFS_LATENCY_fsync, begun);
	return r;
}
