/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes with the library in one: what the library keeps in memory is exchanged when the other one runs. They take turns between
 * calls, and where the agent asks one for a file while the other's call waits for it.
 */
#include <stdio.h>
#include <string.h>

#include "calls/calls.h"
#include "process/service.h"
#include "io/io.h"
#include "crash/agent.h"
#include "crash/workload.h"

static char config[64];
static int now;
static struct {
	struct sfs_state state;
	uint8_t ops[sizeof(sfs_ops)];
	__typeof__(sfs_fds) fds;
	__typeof__(sfs_fds_len) fds_len;
	bool started;
} kept[PROCESSES];

static void start(void)
{
	char *envp[] = {config, "SPLITFS_VISIBILITY_MS=1000000", NULL};

	memset(&sfs, 0, sizeof(sfs));
	memset(sfs_ops, 0, sizeof(sfs_ops));
	sfs_fds = NULL;
	sfs_fds_len = 0;
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
	kept[now].state = sfs;
	memcpy(kept[now].ops, sfs_ops, sizeof(sfs_ops));
	kept[now].fds = sfs_fds;
	kept[now].fds_len = sfs_fds_len;
	now = to;
	if (!kept[now].started) {
		start();
		return;
	}
	sfs = kept[now].state;
	memcpy(sfs_ops, kept[now].ops, sizeof(sfs_ops));
	sfs_fds = kept[now].fds;
	sfs_fds_len = kept[now].fds_len;
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
