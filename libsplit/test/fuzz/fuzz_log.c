/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of any log. With a bit of the first byte set, checksums and sequence numbers are made right, so that what a hostile
 * client can do with valid records is reached. Whatever they say: no file is written that the lease does not name.
 */
/* Made anew for every input. */
#define WORLD_CHUNK (64u << 10)
#include "fuzz.h"

#define SLOTS	   64
#define FIX	   0x01 /* checksums */
#define NAMES	   0x02 /* inodes and staging files that exist, most of them in the lease */
#define OTHER_BOOT 0x04
#define DAX	   0x08
#define HEADER	   0x10 /* bytes of the input over the header */

static struct world_file named[2], other;

static void start(struct world *w)
{
	named[0] = world_file(w, "a", 'a', 10000);
	named[1] = world_file(w, "b", 'b', 100);
	other = world_file(w, "other", 'o', 5000);
	CHECK_EQ(sfs_chunk_create(&w->root, 900, WORLD_CHUNK, NULL), 0); /* in no lease */
}

static void records(struct world *w, struct world_log *l, struct input *in, unsigned flags)
{
	for (uint32_t slot = 0; slot < SLOTS && in->left; slot++) {
		struct sfs_record r;

		take(in, &r, sizeof(r));
		if (flags & NAMES) {
			const struct world_file *f = r.ino % 4 < 2 ? &named[r.ino % 4] : r.ino % 4 == 2 ? &other : NULL;
			const uint32_t chunks[4] = {l->chunk, l->chunk, 900, r.stage_file};

			if (f) {
				r.ino = f->ino;
				r.gen = f->gen;
			}
			r.stage_file = chunks[r.stage_file % 4];
		}
		if (flags & FIX)
			world_seal(w, l, &r, slot);
		CHECK_EQ(pwrite(l->fd, &r, sizeof(r), SFS_LOG_RECORDS_OFFSET + (off_t)slot * 64), 64);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sfs_recover_how how = {.durable = false};
	struct world *w = fuzz_volume();
	struct input in = {data, size};
	const unsigned flags = take_byte(&in);
	struct sfs_recovery sum = {0};
	struct sfs_why why = {0};
	char header[96];
	struct world_log l;
	uint32_t living;
	int err;

	if (!named[0].ino)
		start(w);
	world_log(w, &l, 1, SLOTS);
	for (int i = 0; i < 2; i++)
		world_allow(&l, &named[i]);
	if (flags & HEADER) {
		take(&in, header, sizeof(header));
		CHECK_EQ(pwrite(l.fd, header, sizeof(header), 0), (ssize_t)sizeof(header));
	}
	if (flags & OTHER_BOOT)
		world_reboot(&l, flags & DAX);
	records(w, &l, &in, flags);
	world_log_close(&l);
	err = sfs_recover_all(&w->root, &how, &sum, &living, &why);
	MUST(err == 0 || why.text[0]);
	/* A file system may have no room for what valid records promise; then the log stays. */
	MUST(err == 0 || err == -ENOSPC || err == -EFBIG || err == -EINVAL);
	if (err) {
		sfs_log_remove(&w->root, l.id);
		sfs_lease_remove(&w->root, l.id);
		sfs_chunk_remove(&w->root, l.chunk);
	}
	world_expect(&other, 5000, 0, 5000, 'o');
	for (int i = 0; i < 2; i++)
		CHECK_EQ(ftruncate(named[i].fd, 100), 0);
	return 0;
}
