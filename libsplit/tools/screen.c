/* SPDX-License-Identifier: Apache-2.0 */
/* The table of `splitfs top`. It stays on the terminal when the command ends: what was there before is above it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "top.h"

#define MIN_ROWS 8 /* header, total and a few processes, also where a terminal says that it is smaller */

void screen_init(struct screen *s)
{
	*s = (struct screen){.tty = isatty(STDOUT_FILENO)};
}

static void measure(struct screen *s)
{
	struct winsize w;
	const unsigned rows = s->rows, columns = s->columns;

	s->rows = s->columns = 0;
	if (!s->tty || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
		return;
	s->rows = w.ws_row;
	s->columns = w.ws_col;
	/* Where the lines of the table before stand now nobody knows. */
	if (s->drawn && (rows != s->rows || columns != s->columns)) {
		fputs("\033[H\033[2J", stdout);
		s->drawn = 0;
	}
}

/* One line, cut off at the edge of the terminal: a line that wraps would be two to go up. */
static void line(struct screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void line(struct screen *s, const char *fmt, ...)
{
	char text[5000];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (s->columns && strlen(text) > s->columns)
		text[s->columns] = 0;
	fputs(text, stdout);
	fputs(s->tty ? "\033[K\n" : "\n", stdout);
	s->drawn++;
}

enum cell { PID, COMMAND, MODE, CALLS, READ, WRITE, SERVED, FSYNC, RELINK, CKPT, NOCOPY, CELLS };
static const struct {
	const char *head;
	int width; /* < 0: flush left */
} cells[CELLS] = {
	[PID] = {"PID", 8},	    [COMMAND] = {"COMMAND", -15}, [MODE] = {"MODE", -6},      [CALLS] = {"CALLS/s", 7},
	[READ] = {"READ/s", 8},	    [WRITE] = {"WRITE/s", 8},	  [SERVED] = {"SERVED", 6},   [FSYNC] = {"FSYNC/s", 7},
	[RELINK] = {"RELINK/s", 8}, [CKPT] = {"CKPT/s", 6},	  [NOCOPY] = {"NOCOPY/s", 8},
};

/* A line of the table. What has no room at its end is left out whole: a number that is cut off is another number. */
static void cells_line(struct screen *s, char text[CELLS][16])
{
	char all[CELLS * 18] = "";
	size_t n = 0;

	for (enum cell c = 0; c < CELLS; c++) {
		const size_t width = (size_t)abs(cells[c].width) + (c ? 2 : 0);

		if (s->columns && n + width > s->columns)
			break;
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%*s", c ? "  " : "", cells[c].width, text[c]);
	}
	line(s, "%s", all);
}

static void rate(char out[16], uint64_t n, uint64_t ms, unsigned base)
{
	const double v = (double)n * 1000 / (double)ms;

	if (n && v < 9.95)
		snprintf(out, 16, "%.1f", v);
	else
		cli_amount(out, (uint64_t)(v + 0.5), base);
}

/* Never 100% while a call was the kernel's. */
static void share(char out[16], const struct sfs_counters *c)
{
	const uint64_t calls = top_calls(c);

	if (!calls)
		snprintf(out, 16, "-");
	else
		snprintf(out, 16, "%u%%", (unsigned)((double)top_served(c) * 100 / (double)calls));
}

static void counters_line(struct screen *s, const char *pid, const char *comm, const char *mode, const struct sfs_counters *c,
			  uint64_t ms)
{
	char text[CELLS][16];

	snprintf(text[PID], 16, "%s", pid);
	snprintf(text[COMMAND], 16, "%s", comm);
	snprintf(text[MODE], 16, "%s", mode);
	rate(text[CALLS], top_calls(c), ms, 1000);
	rate(text[READ], c->read_bytes, ms, 1024);
	rate(text[WRITE], top_written(c), ms, 1024);
	share(text[SERVED], c);
	rate(text[FSYNC], c->fsync_ops, ms, 1000);
	rate(text[RELINK], c->relink_ops, ms, 1000);
	rate(text[CKPT], c->checkpoints, ms, 1000);
	rate(text[NOCOPY], top_without_copy(c), ms, 1000);
	cells_line(s, text);
}

static void head_line(struct screen *s)
{
	char text[CELLS][16];

	for (enum cell c = 0; c < CELLS; c++)
		snprintf(text[c], 16, "%s", cells[c].head);
	cells_line(s, text);
}

/* Broken between kinds of call where the terminal has no room for all: what is cut off would always be the fsyncs. */
static void latency_lines(struct screen *s, const char *text)
{
	static const char first[] = "latency p50 / p99: ", further[] = "                   ";
	const char *indent = first;

	while (*text) {
		const size_t room = s->columns > sizeof(first) ? s->columns - (sizeof(first) - 1) : 0;
		size_t n = strlen(text);

		if (room && n > room) {
			const char *end = NULL;

			for (const char *c = strstr(text, ", "); c && (size_t)(c - text) < room; c = strstr(c + 1, ", "))
				end = c;
			if (end)
				n = (size_t)(end - text) + 1;
		}
		line(s, "%s%.*s", indent, (int)n, text);
		text += n;
		text += strspn(text, " ");
		indent = further;
	}
}

static void head(struct screen *s, const struct top *t)
{
	const struct report *rp = t->after;
	char latency[REPORT_LATENCY_TEXT], device[256], size[16], used[16], agent[32] = "none";

	cli_amount(size, rp->pool_bytes, 1024);
	cli_amount(used, rp->pool_bytes - rp->free_bytes, 1024);
	if (rp->agent_pid)
		snprintf(agent, sizeof(agent), "process %d", rp->agent_pid);
	line(s, "volume  %s", rp->root.path);
	snprintf(device, sizeof(device), "device  %s%s, provider %s, agent %s, pool %s of %s in use",
		 rp->root.dax ? "persistent memory, " : "", sfs_memory_word(rp->memory), rp->provider, agent, used, size);
	line(s, "%.*s", (int)cli_line_length(device, s->columns), device); /* no half of a number */
	report_latency_text(latency, &t->latency);
	latency_lines(s, latency);
	if (rp->blocked.n)
		line(s, "blocked %u processes wait too long for a file; 'splitfs status' says for whom", rp->blocked.n);
	line(s, "%s", "");
}

int screen_draw(struct screen *s, const struct top *t, struct sfs_why *why)
{
	static const struct sfs_counters nothing;
	const bool ended = memcmp(&t->ended, &nothing, sizeof(nothing)) != 0;
	size_t room = t->nrows;

	measure(s);
	if (s->drawn)
		printf("\033[%uA\r", s->drawn);
	s->drawn = 0;
	head(s, t);
	head_line(s);
	if (s->rows) {
		/* less the cursor's line, and what comes behind the processes */
		const unsigned taken = 1 + s->drawn + 1 + ended, most = s->rows < MIN_ROWS ? MIN_ROWS : s->rows;

		if (most < taken + t->nrows)
			room = most > taken + 1 ? most - taken - 1 : 0; /* and "more" */
	}
	for (size_t i = 0; i < room; i++) {
		const struct report_process *p = t->rows[i].process;
		char pid[16], comm[16];

		snprintf(pid, sizeof(pid), "%d", p->lease.pid);
		sfs_printable(comm, sizeof(comm), p->lease.comm);
		counters_line(s, pid, comm, report_mode(p), &t->rows[i].delta, t->ms);
	}
	if (room < t->nrows)
		line(s, "%8s  and %zu more processes", "", t->nrows - room);
	if (ended)
		counters_line(s, "", "(ended)", "", &t->ended, t->ms);
	counters_line(s, "", "(volume)", "", &t->total, t->ms);
	if (s->tty)
		fputs("\033[J", stdout);
	else
		putchar('\n');
	if (!s->tty)
		s->drawn = 0;
	return ferror(stdout) ? sfs_fail(why, -EIO, "standard output can't be written") : 0;
}
