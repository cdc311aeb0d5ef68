/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a volume with any header: accepted only whole, and never changed. */
#include "fuzz.h"

#define FIX 0x01 /* the checksum is right */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = fuzz_volume();
	struct input in = {data, size};
	const unsigned flags = take_byte(&in);
	struct sfs_volume_header h = {0}, after;
	struct sfs_why why = {0};
	struct sfs_root r;
	size_t n;
	int fd, err;

	n = in.left < sizeof(h) ? in.left : sizeof(h);
	take(&in, &h, n);
	if (flags & FIX) {
		h.magic = SFS_VOLUME_MAGIC;
		h.crc = 0;
		h.crc = crc32c(0, &h, sizeof(h));
		n = sizeof(h);
	}
	fd = openat(w->root.ctl, "volume", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, &h, n), (ssize_t)n);
	err = sfs_root_open(&r, w->dir, flags & 2, &why);
	MUST(err == 0 || why.text[0]);
	MUST(err != 0 || (n == sizeof(h) && h.magic == SFS_VOLUME_MAGIC && h.format == SFS_FORMAT));
	if (!err)
		sfs_root_close(&r);
	memset(&after, 0, sizeof(after));
	CHECK_EQ(pread(fd, &after, sizeof(after), 0), (ssize_t)n);
	MUST(memcmp(&after, &h, n) == 0);
	close(fd);
	return 0;
}
