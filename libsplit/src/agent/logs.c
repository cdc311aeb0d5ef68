/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs begin with FIRST_SLOTS records, which is all that most programs need, and grow when a client asks. All of them together grow to
 * `log_space` of the volume at most, which is what it has been given for them, and those of a tenant to three times what it leaves free
 * of that. A client whose log may not grow goes on with the one it has: it brings what it has staged into the files more often.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/internal.h"
#include "base/result.h"

static uint32_t blocks_of(uint32_t slots)
{
	return (SFS_LOG_RECORDS_OFFSET + slots * (uint32_t)sizeof(struct sfs_record)) / SFS_BLOCK;
}

static uint32_t space(const struct agent *a)
{
	return (uint32_t)((a->config->log_space ? a->config->log_space : SFS_DEFAULT_LOG_SPACE) / SFS_BLOCK);
}

uint32_t logs_slots(const struct agent *a, const struct client *c)
{
	struct stat st;
	uint64_t slots;

	if (fstat(c->log_fd, &st) < 0 || st.st_size <= SFS_LOG_RECORDS_OFFSET)
		return 0;
	slots = (uint64_t)(st.st_size - SFS_LOG_RECORDS_OFFSET) / sizeof(struct sfs_record);
	return slots < a->worker.log_slots ? (uint32_t)slots : a->worker.log_slots;
}

void logs_count(struct agent *a, struct client *c, uint32_t slots, int by)
{
	const uint32_t blocks = blocks_of(slots) * (uint32_t)by;

	a->log_blocks += blocks;
	c->tenant->logs += blocks;
}

void logs_grow(struct agent *a, struct client *c)
{
	const uint32_t most = a->worker.log_slots;
	/* A client that knows of no growth has what it has for ever. */
	const bool at_once = !(c->features & SFS_FEATURE_GROW);
	const uint32_t slots = at_once || c->log_slots > most / GROWTH ? most : c->log_slots * GROWTH;
	const uint32_t more = slots > c->log_slots ? blocks_of(slots) - blocks_of(c->log_slots) : 0;

	if (c->growing || c->lease.head.memory || more == 0 || a->log_blocks + more > space(a) ||
	    !tenant_may(c->tenant->logs + more - 1, a->log_blocks, space(a), LOG_TIMES) || !worker_grow(a, c, slots))
		return;
	c->growing = true;
	logs_count(a, c, c->log_slots, -1);
	logs_count(a, c, slots, 1);
}

void logs_grown(struct agent *a, struct growth *g)
{
	struct client *c = g->client;

	c->growing = false;
	if (g->err) {
		logs_count(a, c, g->slots, -1);
		logs_count(a, c, g->from, 1);
		if (!sfs_no_space(g->err))
			agent_log(a, "make log %u longer: %s", c->log_id, strerror(-g->err));
	} else {
		c->log_slots = g->slots;
	}
	free(g);
	if (c->state == C_WAIT_GROW)
		request_welcome(a, c);
}
