/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the recorder (PM_RECORD) is told is what happens: the events replayed on a copy of the memory give the same memory; each cached
 * store is written back before the call returns; non-temporal stores are whole lines; lines of records are stored once.
 */
#include "pm/pm.h"

#include "harness.h"

#define SIZE 8192
static unsigned char area[SIZE] __attribute__((aligned(64))), shadow[SIZE], src[SIZE];
static unsigned char dirty[SIZE]; /* cached stores without write-back */
static unsigned events[4];

static void on_event(void *ctx, enum pm_event_kind kind, void *dst, const void *data, size_t n)
{
	size_t at = kind == PM_EV_FENCE ? 0 : (size_t)((unsigned char *)dst - area);

	CHECK(ctx == shadow);
	events[kind]++;
	if (kind == PM_EV_FENCE)
		return;
	CHECK(at < SIZE && n <= SIZE - at && n > 0);
	if (kind == PM_EV_FLUSH) {
		size_t first = at & ~63ul, end = (at + n + 63) & ~63ul;

		memset(dirty + first, 0, (end > SIZE ? SIZE : end) - first);
		return;
	}
	CHECK_MEM(area + at, shadow + at, n); /* told before the effect */
	if (data)
		memcpy(shadow + at, data, n);
	else
		memset(shadow + at, 0, n);
	if (kind == PM_EV_STORE)
		memset(dirty + at, 1, n);
	else
		CHECK(at % 64 == 0 && n % 64 == 0);
}

static void check_clean(void)
{
	static const unsigned char clean[SIZE];

	CHECK_MEM(area, shadow, SIZE);
	CHECK_MEM(dirty, clean, SIZE);
}

int main(void)
{
	static const struct pm_recorder recorder = {on_event, shadow};
	uint64_t rnd = test_seed(4);

	test_fill(&rnd, src, SIZE);
	pm_record(&recorder);
	for (int i = 0; i < 3000; i++) {
		size_t n = test_below(&rnd, i % 3 ? 700 : 5000), at = test_below(&rnd, SIZE - n);

		pm_copy(area + at, src + test_below(&rnd, SIZE - n), n);
		check_clean();
		pm_copy_crc(0, area + at, src + test_below(&rnd, SIZE - n), n);
		check_clean();
		pm_zero(area + at, n / 3);
		check_clean();
	}
	CHECK(events[PM_EV_STORE] > 0 && events[PM_EV_NT] > 0);
	CHECK_EQ(events[PM_EV_FENCE], 0);

	memset(events, 0, sizeof(events));
	pm_copy_line(area + 128, src + 5);
	check_clean();
	CHECK(events[PM_EV_STORE] == 0 && events[PM_EV_FLUSH] == 0 && events[PM_EV_NT] == 1);
	pm_store64((uint64_t *)(area + 192), 42);
	check_clean();
	pm_fence();
	CHECK_EQ(events[PM_EV_FENCE], 1);

	/* pm_store leaves the write-back to its caller. */
	pm_store(area + 300, src, 100);
	CHECK_MEM(area, shadow, SIZE);
	CHECK(dirty[300] && dirty[399] && !dirty[299] && !dirty[400]);
	pm_flush(area + 300, 100);
	check_clean();

	pm_record(NULL);
	pm_copy(area, src, 1000);
	CHECK_EQ(events[PM_EV_STORE], 2);
	return 0;
}
