/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gate.h"
#include "recover/scan.h"
#include "control/store.h"

static struct sfs_root volume;

/* Adds up one file's bytes in one log, newest record first, until a record says that everything older is in the file. */
struct sum {
	uint64_t ino;
	uint32_t gen;
	uint64_t bytes;
};

static int retired(void *ctx, const struct sfs_record *rec)
{
	const struct sum *s = ctx;

	return rec->type == SFS_REC_DONE && (rec->ino == 0 || (rec->ino == s->ino && rec->gen == s->gen));
}

static int written(void *ctx, const struct sfs_record *rec, unsigned n)
{
	struct sum *s = ctx;

	if (rec->ino == s->ino && rec->gen == s->gen)
		for (unsigned i = 0; i < n; i++)
			s->bytes += rec[i].len;
	return 0;
}

int gate_open_volume(const char *root)
{
	struct sfs_why why = {0};
	const int err = sfs_root_open(&volume, root, false, &why);

	if (err)
		fprintf(stderr, "gate: %s\n", why.text);
	return err;
}

dev_t gate_device(void)
{
	return volume.dev;
}

uint64_t gate_staged(uint64_t ino, uint32_t gen)
{
	struct sfs_numbers logs = {0}, leases = {0};
	struct sfs_why why = {0};
	struct sum sum = {.ino = ino, .gen = gen};

	if (sfs_log_list(&volume, &logs, &leases, &why) < 0) {
		fprintf(stderr, "gate: %s\n", why.text);
		_exit(1);
	}
	for (uint32_t i = 0; i < logs.n; i++) {
		const int fd = sfs_log_open(&volume, logs.v[i], O_RDONLY);
		struct sfs_log_header h;

		if (fd < 0)
			continue; /* its process has gone meanwhile */
		if (pread(fd, &h, sizeof(h), 0) == sizeof(h) && h.magic == SFS_LOG_MAGIC) {
			struct sfs_scan scan = {.fd = fd,
						.seed = h.seed,
						.slots = h.slots,
						.epoch = h.epoch,
						.done = retired,
						.group = written,
						.ctx = &sum};
			const int err = sfs_scan(&scan);

			if (err < 0) {
				fprintf(stderr, "gate: read log %u: %s\n", logs.v[i], strerror(-err));
				_exit(1);
			}
		}
		close(fd);
	}
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	return sum.bytes;
}
