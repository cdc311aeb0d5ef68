/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_AFTER_MS 1000
#define PROGRESS_EVERY_MS 200

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

void cli_progress_init(struct cli_progress *p)
{
	*p = (struct cli_progress){.tty = isatty(STDERR_FILENO), .start = now_ms()};
}

void cli_progress(struct cli_progress *p, const char *fmt, ...)
{
	const uint64_t now = now_ms();
	va_list args;

	if (!p->tty || now - p->start < PROGRESS_AFTER_MS || now - p->last < PROGRESS_EVERY_MS)
		return;
	p->last = now;
	p->shown = true;
	fputs("\rsplitfs: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputs("\033[K", stderr);
	fflush(stderr);
}

void cli_progress_end(struct cli_progress *p)
{
	if (p->shown)
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
