/* SPDX-License-Identifier: Apache-2.0 */
/* The report of `splitfs advise` for programs: bytes, and nanoseconds as whole numbers. */
#include <stdio.h>
#include <string.h>

#include "advise.h"

static const char *const op_names[ADV_OPS] = {"read", "append", "overwrite"};
static const char *const reason_names[ADV_REASONS] = {
	[ADV_FEW] = "few-calls",  [ADV_LARGE] = "large-writes", [ADV_FORCED] = "forced-often", [ADV_LOCKED] = "locked",
	[ADV_STREAM] = "stream",  [ADV_MAPPED] = "mapped",	[ADV_ASYNC] = "asynchronous",  [ADV_RING] = "io-uring",
	[ADV_SENT] = "sent-away", [ADV_FLAGS] = "flags",
};
static const char *const program_names[] = {[ADV_NO_PROGRAM] = "none",
					    [ADV_STATIC] = "static",
					    [ADV_PRIVILEGED] = "privileged",
					    [ADV_OTHER_MACHINE] = "other-machine"};
static const char *const view_names[ADV_VIEWS] = {"asksWhenItPays", "asksAtFirstWrite", "asksWhenItPaysOnPersistentMemory",
						  "asksAtFirstWriteOnPersistentMemory"};

static void cell(struct json *j, const char *key, const struct adv_cell *c)
{
	json_object(j, key);
	json_number(j, "calls", c->calls);
	json_number(j, "bytes", c->bytes);
	json_number(j, "cpuNs", c->cpu);
	if (c->wall)
		json_number(j, "wallNs", c->wall);
	json_object_end(j);
}

static void seen(struct json *j, const char *key, const struct adv_seen *s)
{
	json_object(j, key);
	json_object(j, "served");
	for (enum adv_op op = 0; op < ADV_OPS; op++) {
		const struct adv_cell c = advise_served(s, op);

		cell(j, op_names[op], &c);
	}
	cell(j, "fsync", &s->fsync);
	json_object_end(j);
	json_object(j, "kernel");
	for (int why = 0; why < ADV_REASONS; why++) {
		struct adv_cell sum = {0};

		for (enum adv_op op = 0; op < ADV_OPS; op++) {
			sum.calls += s->kernel[why][op].calls;
			sum.bytes += s->kernel[why][op].bytes;
			sum.cpu += s->kernel[why][op].cpu;
		}
		if (sum.calls)
			cell(j, reason_names[why], &sum);
	}
	json_object_end(j);
	json_number(j, "grants", s->grants);
	json_object_end(j);
}

static void counts(struct json *j, const struct advice *a)
{
	const struct adv_report *r = a->counts;

	json_object(j, "fsyncs");
	cell(j, "afterNothing", &r->fsyncs[ADV_GAP_0]);
	cell(j, "afterOneWrite", &r->fsyncs[ADV_GAP_1]);
	cell(j, "after2to9Writes", &r->fsyncs[ADV_GAP_FEW]);
	cell(j, "after10WritesOrMore", &r->fsyncs[ADV_GAP_MANY]);
	json_object_end(j);
	cell(j, "writesWithSync", &r->synced);
	cell(j, "callsWithDirect", &r->direct);
	cell(j, "kernelCopies", &r->copied);
	json_number(j, "streamBytesUnseen", r->stream_unseen);
	json_number(j, "mappings", r->mapped);
	json_number(j, "mappingsForWriting", r->mapped_writable);
	json_number(j, "opens", r->opens);
	json_number(j, "created", r->created);
	json_number(j, "namesChanged", r->names);
	json_number(j, "attributesChanged", r->attributes);
	json_number(j, "renames", r->renames);
	json_number(j, "renamesWithoutFsync", r->renames_unsynced);
	json_number(j, "locks", r->locks);
	json_number(j, "processes", r->processes);
	json_number(j, "processesWithFiles", r->users);
}

static void programs(struct json *j, const struct advice *a)
{
	json_string(j, "commandUnserved", program_names[a->command_kind]);
	json_array(j, "programsUnserved");
	for (int i = 0; i < ADV_PROGRAMS; i++) {
		const struct adv_program_seen *p = &a->counts->programs[i];

		if (p->state != 2)
			continue;
		json_object(j, NULL);
		json_string(j, "path", p->path);
		json_string(j, "why", program_names[p->why]);
		json_number(j, "times", p->times);
		json_object_end(j);
	}
	json_array_end(j);
	json_object(j, "examples");
	for (int why = 0; why < ADV_REASONS; why++)
		if (a->counts->example[why][0])
			json_string(j, reason_names[why], a->counts->example[why]);
	json_object_end(j);
}

static void estimates(struct json *j, const struct advice *a)
{
	json_object(j, "estimates");
	for (enum world mode = POSIX; a->table->measured && mode < WORLDS; mode++) {
		const struct estimate *e = &a->estimates[mode];

		json_object(j, world_names[mode]);
		json_string(j, "view", view_names[advise_view(a, mode, false)]);
		json_number(j, "cpuNs", (uint64_t)(e->calls * 1e9));
		json_number(j, "savedNs", (uint64_t)((e->saved > 0 ? e->saved : 0) * 1e9));
		json_number(j, "lostNs", (uint64_t)((e->saved < 0 ? -e->saved : 0) * 1e9));
		json_object_end(j);
	}
	json_object_end(j);
}

void advise_json_costs(struct json *j, const struct cost_table *t)
{
	char key[32];

	json_object(j, "costsCpuNs");
	for (enum world w = KERNEL; t->measured && w < WORLDS; w++) {
		json_object(j, world_names[w]);
		for (enum adv_op op = 0; op < ADV_OPS; op++)
			for (int i = 0; i < COST_SIZES; i++) {
				snprintf(key, sizeof(key), "%s%u", op_names[op], cost_bytes[i]);
				json_number(j, key, (uint64_t)(t->world[w].op[op][i] + 0.5));
			}
		json_number(j, "fsync", (uint64_t)(t->world[w].fsync > 0 ? t->world[w].fsync : 0));
		json_number(j, "fsyncMiB", (uint64_t)(t->world[w].fsync_byte * (1 << 20)));
		json_number(j, "name", (uint64_t)t->world[w].name);
		json_number(j, "attribute", (uint64_t)t->world[w].attribute);
		json_number(j, "file", (uint64_t)t->world[w].file);
		json_number(j, "grant", (uint64_t)t->world[w].grant);
		json_number(j, "lock", (uint64_t)t->world[w].lock);
		json_number(j, "start", (uint64_t)t->world[w].start);
		json_object_end(j);
	}
	json_object_end(j);
}

void advise_json(struct json *j, const struct advice *a)
{
	json_object(j, NULL);
	json_string(j, "command", a->command);
	json_number(j, "wallNs", (uint64_t)(a->seconds * 1e9));
	json_number(j, "cpuNs", (uint64_t)(a->cpu * 1e9));
	json_string(j, "directory", a->place->dir);
	json_bool(j, "emulated", !a->place->dax);
	json_string(j, "provider", a->place->provider);
	json_string(j, "mode", world_names[a->mode]);
	json_string(j, "why", a->why);
	counts(j, a);
	json_object(j, "views");
	for (int v = 0; v < ADV_VIEWS; v++)
		seen(j, view_names[v], &a->counts->views[v]);
	json_object_end(j);
	programs(j, a);
	advise_json_costs(j, a->table);
	estimates(j, a);
	json_object_end(j);
}
