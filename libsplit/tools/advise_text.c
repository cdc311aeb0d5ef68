/* SPDX-License-Identifier: Apache-2.0 */
/* The report of `splitfs advise` for people. */
#include <stdio.h>
#include <string.h>

#include "advise.h"

static const char *const op_texts[ADV_OPS] = {"read", "append", "overwrite"};
static const char *const reason_texts[ADV_REASONS] = {
	[ADV_FEW] = "too few calls on the file for it to pay",
	[ADV_LARGE] = "large writes, which the page cache takes as fast",
	[ADV_FORCED] = "an fsync after fewer than 16 writes",
	[ADV_LOCKED] = "a POSIX lock before the file was granted",
	[ADV_STREAM] = "a standard stream, or a FILE of stdio's own",
	[ADV_MAPPED] = "the file is mapped (mmap)",
	[ADV_ASYNC] = "asynchronous I/O",
	[ADV_RING] = "the process has an io_uring",
	[ADV_SENT] = "the descriptor was sent to another process",
	[ADV_FLAGS] = "flags of preadv2 or pwritev2",
};
static const char *const program_texts[] = {
	[ADV_STATIC] = "static, and loads no library",
	[ADV_PRIVILEGED] = "set-user-ID or has capabilities, and loads no library",
	[ADV_OTHER_MACHINE] = "for another machine than the library",
};

#define LABEL	50 /* what a row of a table is about */
#define NUMBERS 44 /* and what stands behind it */
#define NARROW	24

/* A label as wide as there is room for, and at most LABEL where all fits; a longer one begins a line earlier. */
static void label(FILE *out, const char *text)
{
	const size_t columns = cli_columns(out);
	const size_t width = !columns || columns >= LABEL + NUMBERS ? LABEL
			     : columns < NARROW + NUMBERS	    ? NARROW
								    : columns - NUMBERS;
	const char *indent = "";

	while (strlen(indent) + strlen(text) > width && columns &&
	       cli_line_length(text, width - strlen(indent)) < strlen(text)) {
		const size_t n = cli_line_length(text, width - strlen(indent));

		fprintf(out, "%s%.*s\n", indent, (int)n, text);
		text += n;
		text += strspn(text, " ");
		indent = "    ";
	}
	fprintf(out, "%s%-*s", indent, (int)(width - strlen(indent)), text);
}

struct pair {
	struct adv_cell here, pmem;
};

static void row(FILE *out, const char *what, struct pair p, const struct pair *all)
{
	const struct adv_cell *cells[2] = {&p.here, &p.pmem}, *of[2] = {&all->here, &all->pmem};

	if (p.here.calls == 0 && p.pmem.calls == 0)
		return;
	label(out, what);
	for (int i = 0; i < 2; i++) {
		char calls[16], bytes[16];

		cli_amount(calls, cells[i]->calls, 1000);
		cli_amount(bytes, cells[i]->bytes, 1024);
		/* Never 100% while a call was the kernel's. */
		fprintf(out, "  %6s %6s %4u%%", calls, bytes,
			of[i]->calls ? (unsigned)((double)cells[i]->calls * 100 / (double)of[i]->calls) : 0);
	}
	fputc('\n', out);
}

static void sum(struct adv_cell *to, const struct adv_cell cells[ADV_OPS])
{
	for (int op = 0; op < ADV_OPS; op++) {
		to->calls += cells[op].calls;
		to->bytes += cells[op].bytes;
	}
}

static void calls(FILE *out, const struct advice *a)
{
	const struct adv_seen *here = &a->counts->views[advise_view(a, a->mode, false)];
	const struct adv_seen *pmem = &a->counts->views[advise_view(a, a->mode, true)];
	const struct advise_sum h = advise_sum(here), p = advise_sum(pmem);
	const struct pair all = {h.all, p.all};

	if (h.all.calls == 0) {
		fprintf(out, "\nNo read or write of a file below %s was seen.\n", a->place->dir);
		return;
	}
	fputc('\n', out);
	label(out, "");
	fprintf(out, "  %-20s  %s\n", "here", "on persistent memory");
	label(out, "reads and writes");
	fprintf(out, "  %6s %6s %5s  %6s %6s\n", "CALLS", "BYTES", "", "CALLS", "BYTES");
	row(out, "on the fast path", (struct pair){h.served, p.served}, &all);
	for (enum adv_op op = 0; op < ADV_OPS; op++) {
		char what[32];

		snprintf(what, sizeof(what), "  %s", op_texts[op]);
		row(out, what, (struct pair){advise_served(here, op), advise_served(pmem, op)}, &all);
	}
	for (int why = 0; why < ADV_REASONS; why++) {
		struct pair k = {0};
		char what[64];

		sum(&k.here, here->kernel[why]);
		sum(&k.pmem, pmem->kernel[why]);
		snprintf(what, sizeof(what), "kernel: %s", reason_texts[why]);
		row(out, what, k, &all);
	}
}

static void one(FILE *out, const char *what, const struct adv_cell *c)
{
	char n[16], bytes[16];

	if (c->calls == 0)
		return;
	cli_amount(n, c->calls, 1000);
	cli_amount(bytes, c->bytes, 1024);
	label(out, what);
	fprintf(out, "  %6s %6s  CPU %.3f s", n, c->bytes ? bytes : "", (double)c->cpu / 1e9);
	if (c->wall)
		fprintf(out, ", waited %.3f s", (double)c->wall / 1e9);
	fputc('\n', out);
}

static void others(FILE *out, const struct advice *a)
{
	const struct adv_report *r = a->counts;
	char unseen[16];

	fputc('\n', out);
	one(out, "fsync after 10 writes or more", &r->fsyncs[ADV_GAP_MANY]);
	one(out, "fsync after 2 to 9 writes", &r->fsyncs[ADV_GAP_FEW]);
	one(out, "fsync after one write", &r->fsyncs[ADV_GAP_1]);
	one(out, "fsync with nothing written", &r->fsyncs[ADV_GAP_0]);
	one(out, "of the writes, with O_SYNC or its like", &r->synced);
	one(out, "of the reads and writes, with O_DIRECT (served)", &r->direct);
	one(out, "kernel: copy_file_range, sendfile, splice", &r->copied);
	cli_amount(unseen, r->stream_unseen, 1024);
	if (r->stream_unseen) {
		label(out, "kernel: written to standard streams by stdio");
		fprintf(out, "  %6s %6s\n", "", unseen);
	}
	if (r->mapped) {
		label(out, "kernel: mappings of files (loads and stores)");
		fprintf(out, "  %6llu\n", (unsigned long long)r->mapped);
	}
	for (int why = 0; why < ADV_REASONS; why++)
		if (r->example[why][0])
			cli_paragraph(out, 4, "for example %s: %s", reason_texts[why], r->example[why]);
}

static void programs(FILE *out, const struct advice *a)
{
	if (a->command_kind != ADV_NO_PROGRAM) {
		fputc('\n', out);
		cli_paragraph(out, 4, "not served: %s is %s", a->command, program_texts[a->command_kind]);
	}
	for (int i = 0; i < ADV_PROGRAMS; i++) {
		const struct adv_program_seen *p = &a->counts->programs[i];

		if (p->state == 2)
			cli_paragraph(out, 4, "not served, started %llu times: %s is %s", (unsigned long long)p->times, p->path,
				      program_texts[p->why]);
	}
}

static void estimates(FILE *out, const struct advice *a)
{
	if (!a->table->measured || advise_sum(&a->counts->views[0]).all.calls == 0)
		return;
	fprintf(out, "\nestimate, seconds of CPU %24s\n", "ON THE FAST PATH NOW  SAVED");
	for (enum world mode = POSIX; mode < WORLDS; mode++) {
		const struct estimate *e = &a->estimates[mode];

		fprintf(out, "  %-6s %20.3f  %13.3f%s\n", world_names[mode], e->calls, e->saved,
			e->saved < 0 ? "  (it would take longer)" : "");
	}
}

void advise_text(FILE *out, const struct advice *a)
{
	const struct adv_report *r = a->counts;

	cli_paragraph(out, 8,
		      "splitfs advise: %s took %.2f s, %.2f s of CPU, in %llu process%s; %llu of them used files below %s",
		      a->command, a->seconds, a->cpu, (unsigned long long)r->processes, r->processes == 1 ? "" : "es",
		      (unsigned long long)r->users, a->place->dir);
	fprintf(out, "device  %s, provider %s\n", a->place->dax ? "persistent memory" : "emulated, no persistent memory",
		a->place->provider);
	cli_paragraph(out, 8, "mode    %s: %s", world_names[a->mode], a->why);
	calls(out, a);
	others(out, a);
	programs(out, a);
	estimates(out, a);
}

void advise_text_costs(FILE *out, const struct advise_place *place, const struct cost_table *t)
{
	fprintf(out, "%s: %s, provider %s; nanoseconds of CPU time\n\n%-18s", place->dir,
		place->dax ? "persistent memory" : "emulated", place->provider, "");
	for (enum world w = KERNEL; w < WORLDS; w++)
		fprintf(out, "%12s", world_names[w]);
	fputc('\n', out);
	for (enum adv_op op = 0; op < ADV_OPS; op++)
		for (int i = 0; i < COST_SIZES; i++) {
			fprintf(out, "%-9s %6u B", op_texts[op], cost_bytes[i]);
			for (enum world w = KERNEL; w < WORLDS; w++)
				fprintf(out, "%12.0f", t->world[w].op[op][i]);
			fputc('\n', out);
		}
#define LINE(what, field, times)                                                                                               \
	fprintf(out, "%-18s", what);                                                                                           \
	for (enum world w = KERNEL; w < WORLDS; w++)                                                                           \
		fprintf(out, "%12.0f", t->world[w].field *(times));                                                            \
	fputc('\n', out)
	LINE("fsync", fsync, 1);
	LINE("fsync, each KiB", fsync_byte, 1024);
	LINE("create, remove", name, 1);
	LINE("times of a file", attribute, 1);
	LINE("file written once", file, 1);
	LINE("the same, granted", grant, 1);
	LINE("POSIX lock", lock, 1);
	LINE("program", start, 1);
#undef LINE
}
