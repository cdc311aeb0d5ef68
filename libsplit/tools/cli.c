/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_AFTER_MS 1000
#define PROGRESS_EVERY_MS 200	/* on a terminal, the same line again */
#define PROGRESS_LINE_MS  10000 /* elsewhere */

int cli_fail(const char *fmt, ...)
{
	va_list args;

	fputs("splitfs: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return 1;
}

int cli_usage(const struct command *c, const char *fmt, ...)
{
	va_list args;

	fputs("splitfs: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "; see 'splitfs %s --help'\n", c->name);
	return EXIT_USAGE;
}

int cli_help(const struct command *c)
{
	fputs(c->help, stdout);
	return fflush(stdout) ? cli_fail("standard output can't be written") : 0;
}

void cli_amount(char out[16], uint64_t n, unsigned base)
{
	static const char units[] = "KMGTPE";
	double v = (double)n;
	int unit = -1;

	while (v >= (unit < 0 ? base : base - 0.5) && unit < (int)sizeof(units) - 2) {
		v /= base;
		unit++;
	}
	if (unit < 0)
		snprintf(out, 16, "%llu", (unsigned long long)n);
	else
		snprintf(out, 16, v < 9.95 ? "%.1f%c" : "%.0f%c", v, units[unit]);
}

bool cli_bytes(const char *s, uint64_t *v)
{
	unsigned shift = 0;
	uint64_t n = 0;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (n > (UINT64_MAX - 9) / 10)
			return false;
		n = n * 10 + (uint64_t)(*s - '0');
	}
	switch (*s) {
	case 'K':
		shift = 10;
		break;
	case 'M':
		shift = 20;
		break;
	case 'G':
		shift = 30;
		break;
	case 'T':
		shift = 40;
		break;
	}
	if (shift)
		s++;
	if (*s || n > (UINT64_MAX >> 1) >> shift)
		return false;
	*v = n << shift;
	return true;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void show(struct cli_progress *p)
{
	fprintf(stderr, p->tty ? "\rsplitfs: %s, %u s\033[K" : "splitfs: %s, %u s\n", p->text,
		(unsigned)((now_ms() - p->start) / 1000));
	fflush(stderr);
	p->shown = true;
}

/* Also while the work stands still, in an fsync say: somebody is waiting. */
static void *ticker(void *arg)
{
	struct cli_progress *p = arg;
	const uint64_t every = p->tty ? PROGRESS_EVERY_MS : PROGRESS_LINE_MS;
	uint64_t next = p->start + PROGRESS_AFTER_MS;

	pthread_mutex_lock(&p->lock);
	while (!p->end) {
		const struct timespec until = {(time_t)(next / 1000), (long)(next % 1000) * 1000000};

		if (pthread_cond_clockwait(&p->wake, &p->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT || p->end)
			continue;
		show(p);
		next += every;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void cli_progress_init(struct cli_progress *p, const char *what)
{
	*p = (struct cli_progress){.tty = isatty(STDERR_FILENO),
				   .start = now_ms(),
				   .lock = PTHREAD_MUTEX_INITIALIZER,
				   .wake = PTHREAD_COND_INITIALIZER};
	snprintf(p->text, sizeof(p->text), "%s", what);
	p->running = pthread_create(&p->thread, NULL, ticker, p) == 0; /* without it nothing is shown, and all the work done */
}

void cli_progress(struct cli_progress *p, const char *fmt, ...)
{
	const uint64_t now = now_ms();
	va_list args;

	if (now < p->next)
		return;
	p->next = now + PROGRESS_EVERY_MS / 2;
	pthread_mutex_lock(&p->lock);
	va_start(args, fmt);
	vsnprintf(p->text, sizeof(p->text), fmt, args);
	va_end(args);
	pthread_mutex_unlock(&p->lock);
}

void cli_progress_end(struct cli_progress *p)
{
	if (!p->running)
		return;
	pthread_mutex_lock(&p->lock);
	p->end = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	if (p->shown && p->tty)
		fputs("\r\033[K", stderr);
}

void cli_recover_progress(void *ctx, const struct sfs_recovery *so_far)
{
	cli_progress(ctx, "recovering: %llu records, %llu MiB copied", (unsigned long long)so_far->replayed,
		     (unsigned long long)(so_far->bytes >> 20));
}

bool cli_check_chunk(const struct command *c, uint64_t chunk_bytes)
{
	if (chunk_bytes && chunk_bytes % SFS_CHUNK_ALIGN == 0 && chunk_bytes <= 1ull << 40)
		return true;
	cli_usage(c, "--chunk-bytes must be a multiple of 2M, at most 1T");
	return false;
}
