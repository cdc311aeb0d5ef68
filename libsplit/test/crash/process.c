/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes with the library in one: what the library keeps in memory is exchanged when the other one runs. They take turns between
 * calls, and where the agent asks one for a file while the other's call waits for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls/calls.h"
#include "process/service.h"
#include "io/io.h"
#include "crash/agent.h"
#include "crash/workload.h"

static char config[64];
static int now;

/* What the library keeps in memory of one process. */
static const struct {
	void *at;
	size_t n;
} pieces[] = {
	{&sfs, sizeof(sfs)},
	{&sfs_files, sizeof(sfs_files)},
	{&sfs_fdt, sizeof(sfs_fdt)},
	{sfs_ops, sizeof(sfs_ops)},
	{&sfs_fds, sizeof(sfs_fds)},
	{&sfs_fds_len, sizeof(sfs_fds_len)},
	{&sfs_fds_fresh, sizeof(sfs_fds_fresh)},
	{&sfs_pin_table, sizeof(sfs_pin_table)},
	{&sfs_buffer_table, sizeof(sfs_buffer_table)},
	{sfs_spare_tables, sizeof(sfs_spare_tables)},
};
#define PIECES (sizeof(pieces) / sizeof(pieces[0]))

static struct {
	uint8_t *piece[PIECES];
	bool started;
} kept[PROCESSES];

static void keep(int which)
{
	for (size_t i = 0; i < PIECES; i++) {
		if (!kept[which].piece[i])
			kept[which].piece[i] = malloc(pieces[i].n);
		memcpy(kept[which].piece[i], pieces[i].at, pieces[i].n);
	}
}

static void take_back(int which)
{
	for (size_t i = 0; i < PIECES; i++)
		memcpy(pieces[i].at, kept[which].piece[i], pieces[i].n);
}

static void start(void)
{
	char *envp[] = {config, "SPLITFS_VISIBILITY_MS=1000000", NULL};

	for (size_t i = 0; i < PIECES; i++)
		memset(pieces[i].at, 0, pieces[i].n);
	sfs_init(envp);
	sfs.service_state = 1; /* there is no thread; its turns are operations of the workload */
	kept[now].started = true;
}

void process_first(enum sfs_mode mode)
{
	snprintf(config, sizeof(config), "SPLITFS_CONFIG=%s:/v:/a", mode_name(mode));
	for (int i = 0; i < PROCESSES; i++)
		kept[i].started = false;
	now = 0;
	start();
}

int process_now(void)
{
	return now;
}

void process_switch(int to)
{
	if (to == now)
		return;
	keep(now);
	now = to;
	if (!kept[now].started) {
		start();
		return;
	}
	take_back(now);
}

bool process_serve(int which, bool timed)
{
	const int before = now;
	const enum cpu cpu = record_cpu_now();
	bool pending;

	process_switch(which);
	record_service(which);
	pending = sfs_service_turn(timed);
	record_cpu(cpu);
	process_switch(before);
	return pending;
}
