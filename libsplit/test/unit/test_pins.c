/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a file under one lock, with nothing of the library around them: threads pin and give back, and look at
 * what they have, while another one changes the file, each time after saving what is pinned. Every snapshot stays
 * what it was; at the end no page and no object is left. The thread sanitizer runs this.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "harness.h"
#include "zerocopy/pins.h"

enum { PAGE = 4096, PAGES = 40, SIZE = PAGES * PAGE - 100, READERS = 3, ROUNDS = 400, KEPT = 6 };

static int fd;
static struct sfs_mutex lock = {.brief = true};
static struct sfs_pins pins;
static uint8_t content[SIZE]; /* under lock */
static bool stop;

static void change(uint64_t *state)
{
	const size_t n = 1 + test_below(state, 3 * PAGE), off = test_below(state, SIZE - n);
	static uint8_t bytes[3 * PAGE + 8];

	test_fill(state, bytes, n);
	sfs_mutex_lock(&lock);
	CHECK_EQ(sfs_pins_save(&pins, off, off + n), 0);
	memcpy(content + off, bytes, n);
	CHECK_EQ(pwrite(fd, bytes, n, (off_t)off), n);
	sfs_mutex_unlock(&lock);
}

static void *changer(void *arg)
{
	uint64_t state = test_seed(7);

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		change(&state);
	return NULL;
}

struct kept {
	const uint8_t *p;
	size_t n;
	uint8_t was[SIZE];
};

static void take(struct kept *k, uint64_t *state)
{
	const size_t off = test_below(state, SIZE - 1), most = SIZE - off;

	k->n = 1 + test_below(state, most);
	sfs_mutex_lock(&lock);
	CHECK_EQ(sfs_pin(&pins, &pins, fd, off, off + k->n, &k->p), 0);
	memcpy(k->was, content + off, k->n);
	sfs_mutex_unlock(&lock);
}

static void give_back(struct kept *k)
{
	CHECK_MEM(k->p, k->was, k->n);
	CHECK(sfs_pin_file(k->p) == &pins);
	sfs_mutex_lock(&lock);
	CHECK_EQ(sfs_unpin(&pins, &pins, k->p), 0);
	sfs_mutex_unlock(&lock);
	k->p = NULL;
}

static void *reader(void *arg)
{
	struct kept *kept = calloc(KEPT, sizeof(*kept));
	uint64_t state = test_seed(100) + (uint64_t)(long)arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct kept *k = &kept[test_below(&state, KEPT)];

		if (k->p)
			give_back(k);
		else
			take(k, &state);
	}
	for (int i = 0; i < KEPT; i++)
		if (kept[i].p)
			give_back(&kept[i]);
	free(kept);
	return NULL;
}

static void threads(void)
{
	pthread_t t[READERS + 1];

	for (long i = 0; i < READERS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, reader, (void *)i), 0);
	CHECK_EQ(pthread_create(&t[READERS], NULL, changer, NULL), 0);
	for (int i = 0; i < READERS; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	CHECK_EQ(pthread_join(t[READERS], NULL), 0);
	CHECK_EQ(pins.total, 0);
	CHECK_EQ(pins.held, 0);
}

/* The same address again is pinned as often; what is saved counts no more; another view follows. */
static void states(void)
{
	const uint8_t *p, *q, *r;

	CHECK_EQ(sfs_pin(&pins, &pins, fd, 0, PAGE, &p), 0);
	CHECK_EQ(sfs_pin(&pins, &pins, fd, 0, 5 * PAGE, &q), 0);
	CHECK(p == q && pins.total == 1);
	CHECK(sfs_pins_meet(&pins, 4 * PAGE, 4 * PAGE + 1));
	CHECK(!sfs_pins_meet(&pins, 5 * PAGE, SIZE));
	CHECK_EQ(sfs_unpin(&pins, &pins, p), 0);
	CHECK(sfs_pins_meet(&pins, 4 * PAGE, 4 * PAGE + 1)); /* nobody knows which one it was */
	CHECK_EQ(sfs_pins_save(&pins, PAGE, PAGE + 1), 0);
	CHECK_EQ(pins.held, 1);
	CHECK_EQ(sfs_pin(&pins, &pins, fd, 0, PAGE, &r), 0);
	CHECK(r != p && pins.total == 2);
	CHECK_EQ(sfs_pins_save_all(&pins), 0);
	CHECK_EQ(pins.held, 0);
	CHECK(!sfs_pins_meet(&pins, 0, UINT64_MAX));
	CHECK_EQ(sfs_unpin(&pins, &content, p), -EINVAL);
	CHECK_EQ(sfs_unpin(&pins, &pins, p + 1), -EINVAL);
	CHECK_EQ(sfs_unpin(&pins, &pins, p), 0);
	CHECK_EQ(sfs_unpin(&pins, &pins, p), -EINVAL);
	CHECK_EQ(sfs_unpin(&pins, &pins, r), 0);
	CHECK(!pins.views && pins.total == 0);
}

/* As many as there may be, and one more; all of them go. */
static void most(void)
{
	const uint8_t *p, *first;

	CHECK_EQ(sfs_pin(&pins, &pins, fd, 0, SIZE, &first), 0);
	for (uint64_t i = 1; i < SFS_PINS_MAX; i++)
		CHECK_EQ(sfs_pin(&pins, &pins, fd, i, i + 1, &p), 0);
	CHECK_EQ(sfs_pin(&pins, &pins, fd, SFS_PINS_MAX, SIZE, &p), -ENOSPC);
	CHECK_EQ(sfs_pin(&pins, &pins, fd, 5, 6, &p), 0); /* one that is there */
	CHECK_EQ(sfs_unpin(&pins, &pins, p), 0);
	for (uint64_t i = 0; i < SFS_PINS_MAX; i++)
		CHECK_EQ(sfs_unpin(&pins, &pins, first + i), 0);
	CHECK(pins.total == 0 && !sfs_pins_any());
}

int main(void)
{
	char path[] = "/tmp/splitfs-pins-XXXXXX";
	uint64_t state = 3;

	fd = mkstemp(path);
	CHECK(fd >= 0 && unlink(path) == 0);
	test_fill(&state, content, SIZE & ~7);
	CHECK_EQ(pwrite(fd, content, SIZE, 0), SIZE);
	states();
	threads();
	most();
	sfs_pins_idle(&pins);
	CHECK(!pins.views);
	return 0;
}
