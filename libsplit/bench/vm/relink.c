/* SPDX-License-Identifier: Apache-2.0 */
/* The relink call itself, through the library's provider, and what it replaces: writing the same bytes to the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../timing.h"
#include "measure.h"
#include "relink/relink.h"
#include "control/store.h"

static int scratch(const char *dir)
{
	return open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Blocks move from one staging file to the target and from there, by truncation, away: each round has a fresh donor. */
static int one(const char *dir, enum relink_provider provider, struct relink_times *t, const char *content, unsigned round,
	       double *relink_took, double *write_took)
{
	int donor = scratch(dir), target = scratch(dir), copy = scratch(dir),
	    r = donor < 0 || target < 0 || copy < 0 ? -errno : 0;
	struct relink_range range = {.donor = donor, .target = target, .len = t->bytes, .size = t->bytes, .persistent = true};
	double from;

	if (!r)
		r = sfs_allocate_huge(donor, (t->bytes + SFS_CHUNK_ALIGN - 1) / SFS_CHUNK_ALIGN * SFS_CHUNK_ALIGN);
	if (!r)
		r = sfs_fill_zero(donor, t->bytes);
	if (!r && (fsync(donor) < 0 || fsync(target) < 0 || fsync(copy) < 0))
		r = -errno;
	if (!r) {
		from = now_ns(CLOCK_MONOTONIC);
		r = relink(provider, &range, NULL);
		relink_took[round] = (now_ns(CLOCK_MONOTONIC) - from) / 1e3;
	}
	if (r >= 0) {
		from = now_ns(CLOCK_MONOTONIC);
		for (uint64_t at = 0; at < t->bytes && r >= 0;) {
			const uint64_t left = t->bytes - at;
			const ssize_t n = pwrite(copy, content, left < (2u << 20) ? left : 2u << 20, (off_t)at);

			r = n <= 0 ? -errno : r;
			at += n > 0 ? (uint64_t)n : 0;
		}
		write_took[round] = (now_ns(CLOCK_MONOTONIC) - from) / 1e3;
	}
	close(donor);
	close(target);
	close(copy);
	return r < 0 ? r : 0;
}

int relink_measure(const char *dir, struct relink_times *t, const char **provider)
{
	double *took = calloc(2 * t->rounds, sizeof(*took));
	char *content = aligned_alloc(4096, 2 << 20);
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), p = fd < 0 ? -errno : relink_probe(fd), r = p < 0 ? p : 0;

	if (!took || !content)
		r = -ENOMEM;
	else
		memset(content, 'x', 2 << 20);
	for (unsigned i = 0; i < t->rounds && r == 0; i++)
		r = one(dir, (enum relink_provider)p, t, content, i, took, took + t->rounds);
	if (r == 0) {
		*provider = relink_provider_name((enum relink_provider)p);
		spread(took, t->rounds, t->relink_us);
		spread(took + t->rounds, t->rounds, t->write_us);
	}
	if (fd >= 0)
		close(fd);
	free(content);
	free(took);
	return r;
}
