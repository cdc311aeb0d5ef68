/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of a good log with any lease: what the agent wrote and a power loss may have left half of. */
/* Made anew for every input. */
#define WORLD_CHUNK (64u << 10)
#include "fuzz.h"

#define FIX 0x01 /* magic, format and number are right */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world_file file, other;
	const struct sfs_recover_how how = {.durable = false};
	struct world *w = fuzz_volume();
	struct input in = {data, size};
	const unsigned flags = take_byte(&in);
	struct sfs_recovery sum = {0};
	struct sfs_why why = {0};
	struct world_log l;
	uint32_t living;
	int fd, err;

	if (!file.ino) {
		file = world_file(w, "file", 'f', 1000);
		other = world_file(w, "other", 'o', 1000);
	}
	world_log(w, &l, 1, 16);
	world_allow(&l, &file);
	world_write(w, &l, &file, 100, 100, 'n', 0);
	world_log_close(&l);
	fd = openat(w->root.log, "000001.lease", O_RDWR);
	CHECK(fd >= 0);
	/* The input over the lease, and its end where the input ends. */
	CHECK_EQ(pwrite(fd, in.at, in.left, flags & FIX ? 16 : 0), (ssize_t)in.left);
	if (!(flags & 2))
		CHECK_EQ(ftruncate(fd, (off_t)in.left + (flags & FIX ? 16 : 0)), 0);
	close(fd);
	err = sfs_recover_all(&w->root, &how, &sum, &living, &why);
	MUST(err == 0 || why.text[0]);
	MUST(err == 0 || err == -EPROTONOSUPPORT);
	sfs_log_remove(&w->root, l.id);
	sfs_lease_remove(&w->root, l.id);
	sfs_chunk_remove(&w->root, l.chunk);
	world_expect(&other, 1000, 0, 1000, 'o');
	CHECK_EQ(pwrite(file.fd, "ffff", 4, 100), 4);
	return 0;
}
