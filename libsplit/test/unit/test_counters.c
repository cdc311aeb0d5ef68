/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of two places of a log, and what is kept of processes that are gone: a library or an agent of the last release knows the first
 * sixteen only, leaves the others at zero, and finds its own in what this one has written.
 */
#include <errno.h>
#include <stddef.h>

#include "base/crc32c.h"
#include "control/store.h"
#include "harness.h"
#include "record/log.h"
#include "recover/world.h"

/* The totals of the last release, as it declares them. */
struct release_totals {
	uint64_t magic;
	uint32_t format;
	uint32_t crc;
	uint64_t counters[16];
	uint64_t recovery_runs, recovery_records, recovery_replayed, recovery_quarantined;
	uint64_t settled_log;
};

static uint32_t crc_of(const struct release_totals *t)
{
	struct release_totals copy = *t;

	copy.crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

/* Every counter of both kinds has its number. */
static void test_sum(const struct sfs_log *log)
{
	struct sfs_volume_log {
		struct sfs_log log;
	} vol = {*log}, none = {{0}};
	struct sfs_counters c;
	struct sfs_usage u;

	for (int i = 0; i < 3; i++) {
		count_later(&vol, patch_ops, 1);
		count_later(&vol, patch_bytes, 5000);
		count(&vol, peek_ops, 2);
	}
	((struct sfs_log_header *)log->map)->later[SFS_LATER_PLACES - 1].swap_ops = 100;
	((struct sfs_log_header *)log->map)->later[0].atomic_bytes = 7;
	log->counters->place[SFS_COUNTER_PLACES - 1].saved_bytes = 9;
	/* A child of fork has no log for a while. */
	count_later(&none, patch_ops, 1);
	sfs_log_counters((const struct sfs_log_header *)log->map, log->counters, &c);
	CHECK_EQ(c.patch_ops, 3);
	CHECK_EQ(c.patch_bytes, 15000);
	CHECK_EQ(c.adopted_bytes, 0);
	CHECK_EQ(c.peek_ops, 6);
	CHECK_EQ(c.swap_ops, 100);
	CHECK_EQ(c.atomic_bytes, 7);
	CHECK_EQ(c.saved_bytes, 9);
	CHECK_EQ(c.read_ops, 0);
	CHECK_EQ(sfs_log_usage(log->fd, SFS_SYNC, &u), 0);
	CHECK_MEM(&u.counters, &c, sizeof(c));
}

/* The log of a library that knows page 1 alone. */
static void test_older_library(const struct sfs_log *log)
{
	struct sfs_log_header *h = (struct sfs_log_header *)log->map;
	struct sfs_counters c;

	memset(h->later, 0, sizeof(h->later));
	sfs_log_counters(h, log->counters, &c);
	CHECK_EQ(c.peek_ops, 6);
	CHECK_EQ(c.patch_ops + c.patch_bytes + c.swap_ops + c.atomic_bytes, 0);
}

/* A process writes what it likes, and so does what damages a log. */
static void test_lies(const struct sfs_log *log)
{
	struct sfs_log_header *h = (struct sfs_log_header *)log->map;
	struct sfs_counters sum = {0};
	struct sfs_usage u;

	memset(h->later, 0xff, sizeof(h->later));
	memset(&h->latency, 0xff, sizeof(h->latency));
	h->later[3].swap_ops = 5;
	log->counters->place[2].read_ops = UINT64_MAX;
	log->counters->place[3].read_ops = SFS_COUNTED_MAX;
	log->counters->place[4].read_ops = SFS_COUNTED_MAX + 1;
	CHECK_EQ(sfs_log_usage(log->fd, SFS_SYNC, &u), 0);
	CHECK_EQ(u.counters.patch_ops, 0);
	CHECK_EQ(u.counters.swap_ops, 5);
	CHECK_EQ(u.counters.read_ops, SFS_COUNTED_MAX);
	CHECK_EQ(u.counters.saved_bytes, 9);
	CHECK_EQ(u.latency[SFS_SYNC].sum_ns[SFS_LATENCY_read], 0);
	for (int i = 0; i < 300; i++)
		sfs_counters_add(&sum, &u.counters);
	CHECK_EQ(sum.read_ops, SFS_SUM_MAX);
	CHECK_EQ(sum.swap_ops, 1500);

	h->magic++;
	CHECK_EQ(sfs_log_usage(log->fd, SFS_SYNC, &u), -EINVAL);
	CHECK_EQ(u.counters.swap_ops + u.counters.read_ops, 0);
	h->magic--;
}

static void put(const struct world *w, const void *bytes, size_t n)
{
	const int fd = openat(w->root.ctl, "totals", O_WRONLY | O_TRUNC | O_CREAT, 0600);

	CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
	close(fd);
}

static size_t get(const struct world *w, void *bytes, size_t n)
{
	const int fd = openat(w->root.ctl, "totals", O_RDONLY);
	const ssize_t r = fd >= 0 ? read(fd, bytes, n) : -1;

	CHECK(r >= 0);
	close(fd);
	return (size_t)r;
}

static void test_totals(const struct world *w)
{
	static uint8_t file[16384];
	struct sfs_totals t = {.counters = {.read_ops = 14, .saved_bytes = 15, .patch_ops = 16, .atomic_bytes = 17},
			       .recovery_runs = 18,
			       .settled_log = 19},
			  back;
	struct release_totals old;
	size_t n;

	t.latency[SFS_SYNC].sum_ns[SFS_LATENCY_read] = 20;
	CHECK_EQ(sfs_totals_write(&w->root, &t), 0);
	CHECK_EQ(sfs_totals_read(&w->root, &back), 0);
	CHECK_MEM(&back, &t, sizeof(t));

	/* The last release reads as much as it knows, and finds that whole. */
	CHECK_EQ(get(w, &old, sizeof(old)), sizeof(old));
	CHECK_EQ(old.crc, crc_of(&old));
	CHECK_EQ(old.counters[0], 14);
	CHECK_EQ(old.counters[15], 15);
	CHECK_EQ(old.recovery_runs, 18);
	CHECK_EQ(old.settled_log, 19);

	/* Any byte that has changed makes all of it worth nothing. */
	n = get(w, file, sizeof(file));
	for (size_t i = 0; i < n; i += i < 400 ? 1 : 37) {
		file[i] ^= 1;
		put(w, file, n);
		CHECK_EQ(sfs_totals_read(&w->root, &back), 0);
		CHECK_EQ(back.counters.read_ops + back.counters.patch_ops, 0);
		file[i] ^= 1;
	}
	for (size_t cut = 0; cut < n; cut += 8) {
		put(w, file, cut);
		CHECK_EQ(sfs_totals_read(&w->root, &back), 0);
		/* The head alone is a file of the last release. */
		CHECK_EQ(back.counters.read_ops, cut == sizeof(old) ? 14 : 0);
		CHECK_EQ(back.counters.patch_ops, 0);
	}

	/* What it writes itself has nothing of the rest. */
	old.counters[0] = 30;
	old.crc = crc_of(&old);
	put(w, &old, sizeof(old));
	memset(&back, 0xff, sizeof(back));
	CHECK_EQ(sfs_totals_read(&w->root, &back), 0);
	CHECK_EQ(back.counters.read_ops, 30);
	CHECK_EQ(back.counters.saved_bytes, 15);
	CHECK_EQ(back.counters.patch_ops, 0);
	CHECK_EQ(back.latency[SFS_SYNC].sum_ns[SFS_LATENCY_read], 0);
	/* And we go on from there, in a longer file. */
	back.counters.patch_ops = 1;
	CHECK_EQ(sfs_totals_write(&w->root, &back), 0);
	CHECK_EQ(get(w, file, sizeof(file)), n);
	CHECK_EQ(sfs_totals_read(&w->root, &t), 0);
	CHECK_MEM(&back, &t, sizeof(t));
}

int main(void)
{
	struct sfs_log log = {0};
	struct sfs_why why = {0};
	struct world w;
	int fd;

	_Static_assert(offsetof(struct sfs_log_header, later) == SFS_LATER_OFFSET && SFS_LATER_OFFSET % 64 == 0 &&
			       SFS_LATER_OFFSET + sizeof(((struct sfs_log_header *)0)->later) == SFS_LATENCY_OFFSET,
		       "places are whole lines, and what was there before stays where it is");
	_Static_assert(sizeof(struct release_totals) == 184, "as the last release has it");
	world_new(&w);
	fd = sfs_log_create(&w.root, 1, 1024, 1024, &why);
	CHECK(fd >= 0);
	CHECK_EQ(sfs_log_map(&log, fd, false, SFS_SYNC), 0);
	test_sum(&log);
	test_older_library(&log);
	test_lies(&log);
	test_totals(&w);
	close(fd);
	world_end(&w);
	return 0;
}
