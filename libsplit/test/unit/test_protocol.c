/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of who owns a file (format/owners.h, format/proto.h): one inode, two and three processes, the agent and its table. All orders of
 * steps are explored, with the death of one process and of the agent at every point. Checked in each state:
 *
 *   - no process has the grant, or changes the file by the kernel, while another one has the grant;
 *   - who has looked finds in the file all that others had completed before;
 *   - whoever waits can still be answered, as long as every process goes on.
 *
 * Then the same with one rule of the protocol left out at a time: each time something must be found.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { PROCESSES = 3, QUEUE = 3, STATES_MAX = 3000000, EDGES_MAX = 16, REVOKES_MAX = 12 };

enum life {
	FREE,	 /* no grant */
	CLAIMED, /* its claim is there, and it has not looked yet */
	WRITING, /* the kernel changes the file for it */
	LOOKING, /* it has asked, to write (`change`) or to read */
	TRYING,	 /* it has asked for the grant */
	HELD,
	STAGED, /* and bytes are staged */
	DEAD,
	GONE, /* and recovered */
};

enum kind { NOTHING, TRY, RELEASE, LOOK, REVOKED, GRANTED, REFUSED, REVOKE, LOOKED };
struct message {
	uint8_t kind, number;
};
struct queue {
	struct message m[QUEUE];
};

struct process {
	uint8_t life;
	uint8_t change; /* LOOKING: to write */
	uint8_t looked; /* 1 + the number of the last answer; 0: none */
	uint8_t before; /* LOOKING: whose bytes were staged when it began, and have not been relinked since, a bit each */
	uint8_t left;	/* DEAD: bytes are staged */
	uint8_t connected;
	struct queue requests, answers; /* to the agent: request socket, event socket */
	struct queue replies, events;	/* from it */
	/* the agent's */
	uint8_t hold, counted, revoking; /* revoking: number of the REVOKE */
	uint8_t looks;			 /* 1 to read, 2 to write */
	uint8_t lease;			 /* on the disk */
};

struct state {
	struct process p[PROCESSES];
	uint8_t number, revokes; /* of the last grant, of the last REVOKE */
	uint8_t alive, scanning; /* the agent; 1 + whom it has counted and not answered yet */
	uint8_t deaths, restarts;
};

/* Rules that can be left out. */
enum rule {
	NONE_LEFT_OUT,
	COUNT_FIRST,	 /* the agent counts before it looks at the claims */
	CLAIM_FIRST,	 /* a process claims before it looks at the table */
	STEP_DOWN_FIRST, /* LOOKED only after REVOKED */
	RECOVER_FIRST,	 /* a dead one is counted until it is recovered */
	TABLE_STAYS,	 /* the next agent counts what leases name */
	NUMBER_CHANGES,	 /* with each grant */
	RELINK_FIRST,	 /* before REVOKED */
	ASK_AGAIN,	 /* a question is asked again on a new connection */
	RULES,
};

static enum rule left_out;
static int processes, grants_max;
static bool process_dies, agent_dies;
static const char *wrong;

/* ---- queues ---- */

static bool put(struct queue *q, enum kind kind, uint8_t number)
{
	for (int i = 0; i < QUEUE; i++) {
		if (q->m[i].kind == NOTHING) {
			q->m[i] = (struct message){(uint8_t)kind, number};
			return true;
		}
	}
	return false; /* the step is not possible now */
}

static struct message first(const struct queue *q)
{
	return q->m[0];
}

static void drop(struct queue *q)
{
	memmove(&q->m[0], &q->m[1], sizeof(q->m) - sizeof(q->m[0]));
	q->m[QUEUE - 1] = (struct message){0};
}

/* ---- the table ---- */

static bool counted(const struct state *s)
{
	for (int i = 0; i < processes; i++)
		if (s->p[i].counted)
			return true;
	return false;
}

static bool clean(const struct state *s, const struct process *p)
{
	return !counted(s) || p->looked == 1 + s->number;
}

static uint8_t staged_by_others(const struct state *s, int i)
{
	uint8_t who = 0;

	for (int k = 0; k < processes; k++)
		if (k != i && (s->p[k].life == STAGED || (s->p[k].life == DEAD && s->p[k].left)))
			who |= (uint8_t)(1u << k);
	return who;
}

/* ---- what must hold ---- */

static void check(const struct state *s)
{
	for (int i = 0; i < processes; i++) {
		const bool holds = s->p[i].life == HELD || s->p[i].life == STAGED;

		for (int k = 0; holds && k < processes; k++) {
			if (k != i && (s->p[k].life == HELD || s->p[k].life == STAGED))
				wrong = "two have the grant";
			if (k != i && s->p[k].life == WRITING)
				wrong = "one has the grant and another one writes by the kernel";
			if (k != i && s->p[k].life == DEAD && s->p[k].left)
				wrong = "one has the grant, and the bytes of a dead one are not in the file";
		}
		for (int k = 0; s->p[i].life == WRITING && k < processes; k++)
			if (k != i && s->p[k].life == DEAD && s->p[k].left)
				wrong = "one writes by the kernel, and the bytes of a dead one are not in the file";
	}
}

/* ---- steps ---- */

static struct state next[EDGES_MAX * PROCESSES];
static int nnext;

static void step(const struct state *s)
{
	check(s);
	if (nnext < EDGES_MAX * PROCESSES)
		next[nnext++] = *s;
	else
		FAIL("too many steps from one state");
}

static void ask(struct state *t, const struct state *s, int i, bool change)
{
	struct process *p = &t->p[i];

	p->life = LOOKING;
	p->change = change;
	p->before = staged_by_others(s, i);
	if (!p->connected || put(&p->answers, LOOK, change ? 2 : 1))
		step(t);
}

/* What process i had staged is in the file. */
static void relinked(struct state *s, int i)
{
	for (int k = 0; k < processes; k++)
		s->p[k].before &= (uint8_t) ~(1u << i);
}

static void read_done(const struct state *s, int i, uint8_t before)
{
	if (before & staged_by_others(s, i))
		wrong = "a reader misses what was complete before";
}

static void steps_of_process(const struct state *s, int i)
{
	struct state t = *s;
	struct process *p = &t.p[i];

	switch ((enum life)s->p[i].life) {
	case FREE:
		if (left_out == CLAIM_FIRST) {
			if (clean(s, p)) {
				p->life = CLAIMED; /* it has looked, and claims next */
				step(&t);
			}
		} else {
			p->life = CLAIMED;
			step(&t);
		}
		t = *s;
		if (clean(s, p)) { /* a read, in one step: what comes later need not be seen */
			read_done(s, i, staged_by_others(s, i));
		} else {
			ask(&t, s, i, false);
		}
		t = *s;
		if (p->connected && s->number < grants_max && put(&p->requests, TRY, 0)) {
			p->life = TRYING;
			step(&t);
		}
		break;
	case CLAIMED:
		if (left_out == CLAIM_FIRST || clean(s, p)) {
			p->life = WRITING;
			step(&t);
		} else {
			ask(&t, s, i, true);
		}
		break;
	case WRITING:
		p->life = FREE;
		step(&t);
		break;
	case HELD:
		p->life = STAGED;
		step(&t);
		t = *s;
		if (p->connected && put(&p->requests, RELEASE, 0)) {
			p->life = FREE;
			step(&t);
		}
		break;
	case STAGED:
		p->life = HELD;
		relinked(&t, i);
		step(&t);
		break;
	default:
		break;
	}
	if (process_dies && s->p[i].life < DEAD && !s->deaths) {
		t = *s;
		p->left = s->p[i].life == STAGED;
		p->before = p->change = 0;
		p->life = DEAD;
		t.deaths = 1;
		step(&t);
	}
}

static void messages_of_process(const struct state *s, int i)
{
	struct state t = *s;
	struct process *p = &t.p[i];
	const struct message reply = first(&p->replies), event = first(&p->events);

	if (s->p[i].life >= DEAD)
		return;
	if (reply.kind != NOTHING) {
		drop(&p->replies);
		if (p->life == TRYING)
			p->life = reply.kind == GRANTED ? HELD : FREE;
		step(&t);
	}
	t = *s;
	if (event.kind == LOOKED) {
		drop(&p->events);
		if (p->life == LOOKING) {
			if (!p->change)
				read_done(s, i, p->before);
			p->looked = 1 + event.number;
			p->life = FREE;
			p->before = p->change = 0;
		}
		step(&t);
	} else if (event.kind == REVOKE && p->life != TRYING) { /* the lock of the file is taken until the answer is there */
		drop(&p->events);
		if (put(&p->answers, REVOKED, event.number)) {
			if (p->life == STAGED && left_out != RELINK_FIRST)
				relinked(&t, i);
			if (p->life == HELD || (p->life == STAGED && left_out != RELINK_FIRST))
				p->life = FREE;
			step(&t);
		}
	}
	/* A new connection. */
	t = *s;
	if (!p->connected && s->alive) {
		p->connected = 1;
		if (p->life == TRYING)
			p->life = FREE;
		if (p->life == LOOKING && left_out != ASK_AGAIN)
			put(&p->answers, LOOK, p->change ? 2 : 1);
		/* It says what it holds; the agent has believed that from the lease already. */
		step(&t);
	}
}

static bool claimed(const struct state *s, int but)
{
	for (int k = 0; k < processes; k++)
		if (k != but && (s->p[k].life == CLAIMED || s->p[k].life == WRITING) && left_out != CLAIM_FIRST)
			return true;
		else if (k != but && s->p[k].life == WRITING)
			return true;
	return false;
}

static bool others_hold(const struct state *s, int i)
{
	for (int k = 0; k < processes; k++)
		if (k != i && s->p[k].hold)
			return true;
	return false;
}

static void uncount(struct process *p)
{
	p->hold = p->counted = p->lease = 0;
}

static void grant(struct state *t, int i)
{
	struct process *p = &t->p[i];

	p->counted = 1;
	if (left_out != NUMBER_CHANGES)
		t->number++;
}

static void steps_of_agent(const struct state *s, int i)
{
	struct state t = *s;
	struct process *p = &t.p[i];
	const struct message request = first(&p->requests), said = first(&p->answers);

	if (s->scanning) {
		if (s->scanning != i + 1)
			return;
		t.scanning = 0;
		if (left_out != COUNT_FIRST && claimed(s, i)) {
			uncount(p);
			CHECK(put(&p->replies, REFUSED, 0));
		} else {
			if (left_out == COUNT_FIRST)
				grant(&t, i);
			p->hold = 1;
			CHECK(put(&p->replies, GRANTED, 0));
		}
		step(&t);
		return;
	}
	if (request.kind == TRY) {
		drop(&p->requests);
		p->revoking = 0;
		uncount(p);
		if (others_hold(s, i)) {
			CHECK(put(&p->replies, REFUSED, 0));
		} else if (left_out == COUNT_FIRST) {
			t.scanning = (uint8_t)(i + 1);
			p->lease = 1;
			/* Looks at the claims now, and counts in the next step. */
			if (claimed(s, i)) {
				t.scanning = 0;
				uncount(p);
				CHECK(put(&p->replies, REFUSED, 0));
			}
		} else {
			p->lease = 1;
			grant(&t, i);
			t.scanning = (uint8_t)(i + 1);
		}
		step(&t);
	} else if (request.kind == RELEASE) {
		drop(&p->requests);
		p->revoking = 0;
		uncount(p);
		step(&t);
	}
	t = *s;
	if (said.kind == LOOK) {
		drop(&p->answers);
		p->looks = said.number;
		step(&t);
	} else if (said.kind == REVOKED) {
		drop(&p->answers);
		if (p->revoking && said.number == p->revoking) {
			p->revoking = 0;
			uncount(p);
		}
		step(&t);
	}
	t = *s;
	if (s->p[i].looks) {
		bool busy = false;

		for (int k = 0; k < processes; k++) {
			struct process *q = &t.p[k];

			if (k == i || !q->hold)
				continue;
			busy = true;
			if (!q->revoking && q->connected && s->revokes < REVOKES_MAX &&
			    put(&q->events, REVOKE, (uint8_t)(s->revokes + 1))) {
				q->revoking = ++t.revokes;
			}
		}
		if (!busy || left_out == STEP_DOWN_FIRST) {
			if (!p->connected || put(&p->events, LOOKED, s->number))
				p->looks = 0;
		}
		if (memcmp(&t, s, sizeof(t)))
			step(&t);
	}
	/* A process is dead, and recovered. */
	t = *s;
	if (s->p[i].life == DEAD) {
		if (left_out == RECOVER_FIRST && p->counted) {
			uncount(p);
			step(&t);
			t = *s;
		}
		uncount(p);
		p->life = GONE;
		relinked(&t, i);
		p->left = p->looks = p->revoking = p->connected = 0;
		memset(&p->requests, 0, 4 * sizeof(struct queue));
		step(&t);
	}
}

static void steps_of_agents_life(const struct state *s)
{
	struct state t = *s;

	if (agent_dies && s->alive && !s->restarts) {
		t.alive = t.scanning = 0;
		for (int i = 0; i < processes; i++) {
			struct process *p = &t.p[i];

			memset(&p->requests, 0, 4 * sizeof(struct queue));
			p->connected = p->hold = p->revoking = p->looks = 0;
		}
		t.restarts = 1;
		step(&t);
	} else if (!s->alive) {
		t.alive = 1;
		for (int i = 0; i < processes; i++) {
			struct process *p = &t.p[i];

			/* What a lease names may be held; the others' words are made anew. */
			p->hold = p->counted = p->lease && left_out != TABLE_STAYS;
		}
		if (left_out != NUMBER_CHANGES)
			t.number++;
		step(&t);
	}
}

static void expand(const struct state *s)
{
	nnext = 0;
	for (int i = 0; i < processes; i++) {
		steps_of_process(s, i);
		if (s->alive) {
			messages_of_process(s, i);
			steps_of_agent(s, i);
		}
	}
	steps_of_agents_life(s);
}

/* ---- the search ---- */

static struct state *states;
static uint32_t nstates, *slots, *edge_from, *edge_to, nedges;
enum { SLOTS = 1 << 23, EDGES = 24000000 };

static uint64_t hash(const struct state *s)
{
	const uint8_t *b = (const uint8_t *)s;
	uint64_t h = 0;

	for (size_t i = 0; i < sizeof(*s); i++)
		h = (h ^ b[i]) * 0x100000001b3ull;
	return h ^ h >> 29;
}

static uint32_t enter(const struct state *s)
{
	uint32_t at = (uint32_t)hash(s) & (SLOTS - 1);

	while (slots[at] && memcmp(&states[slots[at] - 1], s, sizeof(*s)))
		at = (at + 1) & (SLOTS - 1);
	if (!slots[at]) {
		if (nstates == STATES_MAX)
			FAIL("more than %d states", STATES_MAX);
		states[nstates] = *s;
		slots[at] = ++nstates;
	}
	return slots[at] - 1;
}

/* Is there a wait that nothing ends? Backwards from the states in which process i does not wait. */
static void check_waits(int i)
{
	uint8_t *ends = calloc(nstates, 1);
	bool more = true;

	CHECK(ends);
	for (uint32_t n = 0; n < nstates; n++)
		ends[n] = states[n].p[i].life != LOOKING && states[n].p[i].life != TRYING;
	while (more) {
		more = false;
		for (uint32_t e = nedges; e-- > 0;) {
			if (ends[edge_to[e]] && !ends[edge_from[e]]) {
				ends[edge_from[e]] = 1;
				more = true;
			}
		}
	}
	for (uint32_t n = 0; n < nstates; n++)
		if (!ends[n])
			wrong = "a wait without an end";
	free(ends);
}

static void explore(int n, int grants, enum rule without)
{
	struct state s = {.alive = 1};

	processes = n;
	grants_max = grants;
	left_out = without;
	wrong = NULL;
	nstates = nedges = 0;
	memset(slots, 0, SLOTS * sizeof(*slots));
	for (int i = 0; i < n; i++)
		s.p[i].connected = 1;
	enter(&s);
	for (uint32_t at = 0; at < nstates && !wrong; at++) {
		s = states[at];
		expand(&s);
		for (int k = 0; k < nnext; k++) {
			CHECK(nedges < EDGES);
			edge_from[nedges] = at;
			edge_to[nedges++] = enter(&next[k]);
		}
	}
	for (int i = 0; i < n && !wrong; i++)
		check_waits(i);
}

/* How much of it is explored: more than two processes, or deaths of both kinds, are many states. */
static const struct scope {
	int processes, grants;
	bool process_dies, agent_dies;
} scopes[] = {
	{2, 3, false, false},
	{2, 2, true, true},
	{3, 1, false, false},
};

int main(void)
{
	states = malloc(STATES_MAX * sizeof(*states));
	slots = malloc(SLOTS * sizeof(*slots));
	edge_from = malloc(EDGES * sizeof(*edge_from));
	edge_to = malloc(EDGES * sizeof(*edge_to));
	CHECK(states && slots && edge_from && edge_to);
	for (size_t i = 0; i < sizeof(scopes) / sizeof(scopes[0]); i++) {
		const struct scope *c = &scopes[i];

		process_dies = c->process_dies;
		agent_dies = c->agent_dies;
		explore(c->processes, c->grants, NONE_LEFT_OUT);
		printf("%d processes, %d grants: %u states, %u steps\n", c->processes, c->grants, nstates, nedges);
		if (wrong)
			FAIL("%s", wrong);
	}
	process_dies = agent_dies = true;
	for (int rule = NONE_LEFT_OUT + 1; rule < RULES; rule++) {
		explore(2, 2, (enum rule)rule);
		printf("without rule %d: %s\n", rule, wrong ? wrong : "nothing");
		if (!wrong)
			FAIL("nothing is found without rule %d", rule);
	}
	free(states);
	free(slots);
	free(edge_from);
	free(edge_to);
	return 0;
}
