/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log is closed for good, or made another file, while threads write lines to it: what write(2) said was written is in one of the files, once and
 * whole, and nothing else is. A line is not missed whose write had not returned when the number began to be closed for good: that may be another
 * descriptor by then, one of the library's for a moment (docs/interception.md).
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { THREADS = 3, ROUNDS = 40, LINE = 16, ENOUGH = 300000 };

static int number;
static bool closing;
static long written[THREADS], sure[THREADS]; /* lines; the first of them whose writes had returned before that */
static bool found[1 << 20];

static void *writes(void *arg)
{
	const long t = (long)arg;
	char line[LINE + 1];

	for (;; written[t]++) {
		ssize_t r;

		CHECK(snprintf(line, sizeof(line), "%03ld%012ld\n", t, written[t]) == LINE);
		r = write(number, line, LINE);
		if (r != LINE) {
			CHECK(r == -1 && errno == EBADF);
			return NULL;
		}
		if (written[t] > ENOUGH) /* the call under which it writes has to wait for its turn */
			usleep(1000);
		sure[t] += !__atomic_load_n(&closing, __ATOMIC_SEQ_CST);
	}
}

/* Lines of the file that are found for the first time, and are looked for. */
static long lines(const char *name, long limit)
{
	static char buf[1 << 24];
	const int fd = open(name, O_RDONLY);
	const ssize_t n = read(fd, buf, sizeof(buf));
	long looked_for = 0;

	CHECK(fd >= 0 && n >= 0 && n % LINE == 0 && (size_t)n < sizeof(buf));
	for (ssize_t i = 0; i < n; i += LINE) {
		char line[LINE + 1] = "";
		long t, k;

		memcpy(line, buf + i, LINE); /* sscanf() looks for the end of its string */
		CHECK(line[LINE - 1] == '\n' && sscanf(line, "%3ld%12ld", &t, &k) == 2);
		CHECK(t >= 0 && t < THREADS && k >= 0 && k < written[t] && t * limit + k < (long)sizeof(found));
		CHECK(!found[t * limit + k]);
		found[t * limit + k] = true;
		looked_for += k < sure[t];
	}
	CHECK(close(fd) == 0);
	return looked_for;
}

static void round_of(int i)
{
	pthread_t threads[THREADS];
	long all = 0, limit = 0, n;
	int fd;

	CHECK(unlink("log") == 0 || errno == ENOENT);
	CHECK(unlink("log.1") == 0 || errno == ENOENT);
	memset(written, 0, sizeof(written));
	memset(sure, 0, sizeof(sure));
	__atomic_store_n(&closing, false, __ATOMIC_SEQ_CST);
	const int flags = O_WRONLY | O_CREAT | (i % 2 ? O_APPEND : 0);
	number = open("log", flags, 0644);
	CHECK(number >= 0);
	for (long t = 0; t < THREADS; t++)
		CHECK(pthread_create(&threads[t], NULL, writes, (void *)t) == 0);
	usleep((useconds_t)(i * 7 % 500 + 100));
	if (i % 3) {
		CHECK(rename("log", "log.1") == 0);
		fd = open("log", flags, 0644);
		CHECK(fd >= 0 && dup2(fd, number) == number && close(fd) == 0);
		usleep((useconds_t)(i * 7 % 500 + 100));
	}
	__atomic_store_n(&closing, true, __ATOMIC_SEQ_CST);
	CHECK(close(number) == 0);
	for (int t = 0; t < THREADS; t++) {
		CHECK(pthread_join(threads[t], NULL) == 0);
		all += sure[t];
		limit = written[t] > limit ? written[t] : limit;
	}
	memset(found, 0, sizeof(found));
	n = lines("log", limit) + (i % 3 ? lines("log.1", limit) : 0);
	if (n != all)
		fprintf(stderr, "round %d: %ld lines of %ld\n", i, n, all);
	CHECK(n == all);
}

int main(void)
{
	alarm(100);
	for (int i = 0; i < ROUNDS; i++)
		round_of(i);
	return 0;
}
