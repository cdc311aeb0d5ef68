/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies as the reports show them. */
#include <stdio.h>

#include "report.h"

static const char *const kinds[] = {
#define NAME(name) #name,
	SFS_LATENCY_KINDS(NAME)
#undef NAME
};

uint64_t report_timed(const struct sfs_latencies *l, enum sfs_latency_kind kind)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++)
		n += l->bucket[kind][i];
	return n;
}

uint64_t report_percentile(const struct sfs_latencies *l, enum sfs_latency_kind kind, unsigned percent)
{
	const uint64_t n = report_timed(l, kind), rank = (n * percent + 99) / 100;
	uint64_t below = 0;
	unsigned i = 0;

	if (!n)
		return 0;
	while ((below += l->bucket[kind][i]) < rank)
		i++;
	return sfs_latency_bound(i);
}

void report_json_percentiles(struct json *j, const char *key, const struct sfs_latencies *l)
{
	json_object(j, key);
	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		if (!report_timed(l, kind))
			continue;
		json_object(j, kinds[kind]);
		json_number(j, "timed", report_timed(l, kind));
		json_number(j, "p50_ns", report_percentile(l, kind, 50));
		json_number(j, "p99_ns", report_percentile(l, kind, 99));
		json_object_end(j);
	}
	json_object_end(j);
}

static void json_kind(struct json *j, const struct sfs_latencies *l, enum sfs_latency_kind kind)
{
	json_object(j, kinds[kind]);
	json_number(j, "timed", report_timed(l, kind));
	json_number(j, "sum_ns", l->sum_ns[kind]);
	json_array(j, "buckets");
	for (unsigned i = 0; i < SFS_LATENCY_BUCKETS; i++) {
		if (!l->bucket[kind][i])
			continue;
		json_array(j, NULL);
		json_number(j, NULL, i + 1 < SFS_LATENCY_BUCKETS ? sfs_latency_bound(i) : 0);
		json_number(j, NULL, l->bucket[kind][i]);
		json_array_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

void report_json_latency(struct json *j, const char *key, const struct sfs_latencies latency[SFS_MODES])
{
	json_object(j, key);
	for (unsigned mode = 0; mode < SFS_MODES; mode++) {
		const struct report_process named = {.lease.mode = (uint8_t)mode};
		bool any = false;

		for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++)
			any = any || report_timed(&latency[mode], kind);
		if (!any)
			continue;
		json_object(j, report_mode(&named));
		for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++)
			if (report_timed(&latency[mode], kind))
				json_kind(j, &latency[mode], kind);
		json_object_end(j);
	}
	json_object_end(j);
}

static void duration(char *out, size_t n, uint64_t ns)
{
	if (ns < 1000)
		snprintf(out, n, "%u ns", (unsigned)ns);
	else if (ns < 1000000)
		snprintf(out, n, "%.1f us", (double)ns / 1e3);
	else
		snprintf(out, n, "%.1f ms", (double)ns / 1e6);
}

/* "320 ns / 1.5 us" */
static void percentiles(char out[40], const struct sfs_latencies *l, enum sfs_latency_kind kind)
{
	char half[16], most[16];

	duration(half, sizeof(half), report_percentile(l, kind, 50));
	duration(most, sizeof(most), report_percentile(l, kind, 99));
	snprintf(out, 40, "%s / %s", half, most);
}

void report_latency_text(char out[REPORT_LATENCY_TEXT], const struct sfs_latencies *l)
{
	char *end = out + REPORT_LATENCY_TEXT, both[40];

	*out = 0;
	for (unsigned kind = 0, some = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		if (!report_timed(l, kind))
			continue;
		percentiles(both, l, kind);
		out += snprintf(out, (size_t)(end - out), "%s%s %s", some++ ? ", " : "", kinds[kind], both);
	}
}

void report_print_percentiles(FILE *out, const struct sfs_latencies *l)
{
	char both[40], name[32];

	for (unsigned kind = 0; kind < SFS_LATENCY_NKINDS; kind++) {
		if (!report_timed(l, kind))
			continue;
		percentiles(both, l, kind);
		snprintf(name, sizeof(name), "%s_p50_p99", kinds[kind]);
		fprintf(out, "    %-18s %s\n", name, both);
	}
}
