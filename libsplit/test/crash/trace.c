/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What real programs did, call by call: text made by record-trace from a run of SQLite and of LevelDB. The bytes are made up, their
 * places and the order of the calls are the programs'.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash/app.h"
#include "harness.h"

#define DIRECTORY "test/crash/traces"
#define OPEN_MAX_ 8

static const char *const names[] = {"sqlite-rollback", "sqlite-wal", "leveldb", NULL};

const char *const *trace_names(void)
{
	return names;
}

struct open_file {
	char name[24];
	int slot; /* -1 */
};

static int *slot_of(struct open_file *files, const char *name)
{
	for (int i = 0; i < OPEN_MAX_; i++)
		if (files[i].slot >= 0 && strcmp(files[i].name, name) == 0)
			return &files[i].slot;
	return NULL;
}

static void open_one(struct app *a, struct open_file *files, const char *name)
{
	int i = 0;

	while (i < OPEN_MAX_ && files[i].slot >= 0)
		i++;
	CHECK(i < OPEN_MAX_);
	files[i].slot = app_open(a, name, true);
	snprintf(files[i].name, sizeof(files[i].name), "%.23s", name);
}

bool trace_play(struct app *a, const char *name)
{
	struct open_file files[OPEN_MAX_];
	char path[64], line[400], call[16], f[64], g[64];
	static uint8_t bytes[KERN_FILE_BLOCKS * KERN_BLOCK];
	uint64_t seed = 42;
	FILE *in;

	for (int i = 0; i < OPEN_MAX_; i++)
		files[i].slot = -1;
	snprintf(path, sizeof(path), "%s/%s", DIRECTORY, name);
	in = fopen(path, "r");
	if (!in)
		FAIL("%s can't be read: run this in libsplit/", path);
	while (fgets(line, sizeof(line), in)) {
		unsigned long long x = 0, y = 0;
		int *slot;

		if (line[0] == '#')
			continue;
		CHECK(sscanf(line, "%15s %63s", call, f) == 2 && strlen(f) < 22);
		slot = slot_of(files, f);
		if (strcmp(call, "open") == 0) {
			open_one(a, files, f);
		} else if (strcmp(call, "rename") == 0) {
			CHECK(sscanf(line, "%*s %*s %63s", g) == 1);
			app_rename(a, f, g);
		} else if (strcmp(call, "unlink") == 0) {
			app_unlink(a, f);
		} else if (strcmp(f, ".") == 0) {
			app_fsync_dir(a);
		} else if (!slot) {
			FAIL("%s: %s is not open", path, line);
		} else if (strcmp(call, "close") == 0) {
			app_close(a, *slot);
			*slot = -1;
		} else if (strcmp(call, "write") == 0) {
			CHECK(sscanf(line, "%*s %*s %llu %llu", &x, &y) == 2 && y <= sizeof(bytes));
			test_fill(&seed, bytes, y);
			app_write(a, *slot, x, bytes, y);
		} else if (strcmp(call, "truncate") == 0) {
			CHECK(sscanf(line, "%*s %*s %llu", &x) == 1);
			app_truncate(a, *slot, x);
		} else {
			app_fsync(a, *slot, strcmp(call, "fdatasync") == 0);
		}
	}
	fclose(in);
	return true;
}
