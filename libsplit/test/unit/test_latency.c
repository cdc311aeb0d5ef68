/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latencies: every time is in the bucket whose bounds hold it; one of many calls is timed, at distances that differ; what was timed is in the
 * log's first page, goes over to the totals and stays there; totals of before they had latencies are read.
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#include "base/crc32c.h"
#include "control/store.h"
#include "record/latency.h"
#include "recover/world.h"

static void test_buckets(void)
{
	uint64_t rnd = test_seed(5);

	for (int i = 0; i < 100000; i++) {
		const uint64_t ns = test_random(&rnd) >> test_below(&rnd, 64);
		const unsigned b = sfs_latency_bucket(ns);

		CHECK(b < SFS_LATENCY_BUCKETS);
		if (b > 0)
			CHECK(ns >= sfs_latency_bound(b - 1));
		if (b + 1 < SFS_LATENCY_BUCKETS)
			CHECK(ns < sfs_latency_bound(b));
	}
	CHECK_EQ(sfs_latency_bucket(0), 0);
	CHECK_EQ(sfs_latency_bound(0), 32);
	CHECK_EQ(sfs_latency_bound(1), 48);
	CHECK_EQ(sfs_latency_bound(2), 64);
	CHECK_EQ(sfs_latency_bound(SFS_LATENCY_BUCKETS - 1), 3ull << 27);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static uint64_t timed_of(const struct sfs_latency *l, enum sfs_latency_kind kind)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
		n += l->bucket[kind][i];
	return n;
}

/* Calls of one thread; every distance from one that is timed to the next is in `seen`. Returns how many were. */
static unsigned calls(const struct sfs_log *log, unsigned n, bool fsync, bool *seen)
{
	unsigned timed = 0, last = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!sfs_timed(fsync))
			continue;
		sfs_timing_end(log, fsync ? SFS_LATENCY_fsync : SFS_LATENCY_read, sfs_timing_begin(fsync));
		if (timed++)
			seen[i - last] = true;
		last = i;
	}
	return timed;
}

static void test_sampling(const struct sfs_log *log)
{
	struct sfs_log_header *h = (struct sfs_log_header *)log->map;
	bool seen[4 * SFS_TIMED_EVERY] = {false};
	const struct sfs_log none = {0};
	unsigned timed, distances = 0;
	const unsigned n = 100000;
	int64_t begun = now_ns();
	uint64_t sum;

	/* The clock is not known yet: nothing is counted. On a machine that takes a millisecond for so few calls it may be known by then. */
	calls(log, 4 * SFS_TIMED_EVERY, false, seen);
	if (now_ns() - begun < 1000000)
		CHECK_EQ(timed_of(&h->latency, SFS_LATENCY_read), 0);
	memset(h->latency.bucket, 0, sizeof(h->latency.bucket));
	while (!sfs_timing_learn(now_ns()))
		CHECK(now_ns() - begun < 1000000000);
	CHECK(now_ns() - begun >= 1000000);

	memset(seen, 0, sizeof(seen));
	timed = calls(log, n, false, seen);
	CHECK_EQ(timed_of(&h->latency, SFS_LATENCY_read), timed);
	CHECK(timed > n / SFS_TIMED_EVERY * 9 / 10 && timed < n / SFS_TIMED_EVERY * 11 / 10);
	for (unsigned i = 0; i < sizeof(seen); i++)
		distances += seen[i];
	CHECK(distances > SFS_TIMED_EVERY / 2);
	timed = calls(log, n, true, seen);
	CHECK(timed > n / SFS_TIMED_EVERY_FSYNC * 8 / 10 && timed < n / SFS_TIMED_EVERY_FSYNC * 12 / 10);
	CHECK_EQ(timed_of(&h->latency, SFS_LATENCY_fsync), timed);

	/* Of a known length. The machine may make it longer, nothing makes it shorter. */
	sum = h->latency.sum_ns[SFS_LATENCY_append];
	begun = (int64_t)sfs_timing_begin(false);
	nanosleep(&(struct timespec){0, 3000000}, NULL);
	sfs_timing_end(log, SFS_LATENCY_append, (uint64_t)begun);
	sum = h->latency.sum_ns[SFS_LATENCY_append] - sum;
	CHECK(sum > 2900000 && sum < 1000000000);
	CHECK_EQ(h->latency.bucket[SFS_LATENCY_append][sfs_latency_bucket(sum)], 1);

	/* A child of fork has no log for a while. */
	sfs_timing_end(&none, SFS_LATENCY_append, (uint64_t)begun);
	sfs_timing_end(log, SFS_LATENCY_overwrite, 0);
	CHECK_EQ(timed_of(&h->latency, SFS_LATENCY_overwrite), 0);
}

static void test_totals(const struct world *w, const struct sfs_log *log)
{
	const struct sfs_log_header *h = (const struct sfs_log_header *)log->map;
	const struct sfs_recovery nothing = {0};
	struct sfs_totals t = {0}, back;
	struct sfs_usage u;

	CHECK_EQ(sfs_log_usage(log->fd, SFS_STRICT, &u), 0);
	CHECK_EQ(u.latency[SFS_STRICT].sum_ns[SFS_LATENCY_append], h->latency.sum_ns[SFS_LATENCY_append]);
	CHECK_EQ(u.latency[SFS_POSIX].sum_ns[SFS_LATENCY_append], 0);
	CHECK_EQ(u.counters.read_ops, 7);
	for (int i = 0; i < 2; i++)
		sfs_totals_add(&t, &u, &nothing);
	CHECK_EQ(sfs_totals_write(&w->root, &t), 0);
	CHECK_EQ(sfs_totals_read(&w->root, &back), 0);
	CHECK_MEM(&back, &t, sizeof(t));
	for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
		CHECK_EQ(back.latency[SFS_STRICT].bucket[SFS_LATENCY_read][i], 2 * h->latency.bucket[SFS_LATENCY_read][i]);

	/* A mode that nobody knows: counted, and timed for nobody. */
	CHECK_EQ(sfs_log_usage(log->fd, 99, &u), 0);
	CHECK_EQ(u.counters.read_ops, 7);
}

int main(void)
{
	struct sfs_log log = {0};
	struct sfs_why why = {0};
	struct world w;
	int fd;

	_Static_assert(offsetof(struct sfs_log_header, latency) == SFS_LATENCY_OFFSET &&
			       offsetof(struct sfs_log_header, claims) == SFS_CLAIMS_OFFSET,
		       "both sides of the log agree on where things are");
	test_buckets();
	world_new(&w);
	fd = sfs_log_create(&w.root, 1, 1024, 1024, &why);
	CHECK(fd >= 0);
	CHECK_EQ(sfs_log_map(&log, fd, false, SFS_STRICT), 0);
	log.counters->place[3].read_ops = 7;
	test_sampling(&log);
	test_totals(&w, &log);
	close(fd);
	world_end(&w);
	return 0;
}
