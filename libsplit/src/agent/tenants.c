/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: what is limited is limited for all clients of a pod together, so that the others notice nothing of one that takes what it can.
 * A pod is known by its cgroup, which nobody in it can leave; below it there may be any number. Where there are no pods a container
 * is one tenant, and without containers a user is.
 *
 * Places (connections, connections without HELLO, holds, questions, staging files): a tenant may have so many as it leaves free,
 * or a multiple of that. One alone gets most of them, several get the same each, and for the next one there is always something left.
 *
 * Time: a tenant gets ROUND_US of each round of the loop, and over time CPU_PERCENT of a processor, recovery of its logs included. Then its
 * requests wait.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "agent/internal.h"

#define ROUND_US    300
#define CPU_PERCENT 50
#define CREDIT_US   2000000 /* a burst: some thousands of programs that start */
#define UID_DIGITS  32	    /* of a pod's UID or of a static pod's hash; of a container's id twice as many */

/* ---- names ---- */

static size_t id_length(const char *s, const char *end, bool dashes)
{
	size_t n = 0;

	while (s < end && ((*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'f') || (dashes && (*s == '-' || *s == '_')))) {
		s++;
		n++;
	}
	return n;
}

/* Where the UID begins in a component [s, end) of a cgroup's path: podUID, as one kubelet makes it, or ...-podUID.slice, as the other does. */
static const char *pod_uid(const char *s, const char *end)
{
	for (const char *p = s; p + 3 + UID_DIGITS <= end; p++)
		if (memcmp(p, "pod", 3) == 0 && (p == s || p[-1] == '-') && id_length(p + 3, end, true) >= UID_DIGITS)
			return p + 3;
	return NULL;
}

static bool is_pod(const char *s, const char *end)
{
	return pod_uid(s, end) != NULL;
}

/* docker-ID.scope, cri-containerd-ID.scope, or the ID. */
static bool is_container(const char *s, const char *end)
{
	for (const char *p = s; p + 2 * UID_DIGITS <= end; p++)
		if (id_length(p, end, false) == 2 * UID_DIGITS)
			return true;
	return false;
}

/* The first such component: what is below it the tenant may have made itself. */
static bool find_component(const char *cgroups, bool (*is)(const char *s, const char *end), char name[TENANT_NAME])
{
	for (const char *s = cgroups, *end; *s; s = *end ? end + 1 : end) {
		end = s + strcspn(s, "/\n");
		if (end - s < TENANT_NAME && is(s, end)) {
			snprintf(name, TENANT_NAME, "%.*s", (int)(end - s), s);
			return true;
		}
	}
	return false;
}

static bool name_of_cgroups(const char *cgroups, char name[TENANT_NAME])
{
	return find_component(cgroups, is_pod, name) || find_component(cgroups, is_container, name);
}

void tenant_name(const char *cgroups, const char *own, uint32_t uid, char name[TENANT_NAME])
{
	/* Who runs in our own container is told apart as on a node without any. */
	if (!name_of_cgroups(cgroups, name) || strcmp(own, name) == 0)
		snprintf(name, TENANT_NAME, "user %u", uid);
}

void tenant_pod(const char *cgroups, char uid[TENANT_POD])
{
	char name[TENANT_NAME];
	const char *from, *end = name;
	size_t n = 0;

	uid[0] = 0;
	if (!find_component(cgroups, is_pod, name))
		return;
	end += strlen(name);
	from = pod_uid(name, end);
	for (const size_t length = id_length(from, end, true); n < length && n + 1 < TENANT_POD; n++)
		uid[n] = from[n] == '_' ? '-' : from[n];
	uid[n] = 0;
}

void tenants_start(struct agent *a)
{
	char cgroups[SFS_CGROUPS_MAX];

	a->tenants_refilled = tenant_clock();
	sfs_process_cgroups(a->pid, cgroups);
	if (!name_of_cgroups(cgroups, a->tenant_own))
		a->tenant_own[0] = 0;
}

/* ---- who ---- */

struct tenant *tenant_of(struct agent *a, int pid, uint32_t uid)
{
	char cgroups[SFS_CGROUPS_MAX], name[TENANT_NAME];
	struct tenant *t;

	sfs_process_cgroups(pid, cgroups);
	tenant_name(cgroups, a->tenant_own, uid, name);
	for (t = a->tenants; t && strcmp(t->name, name) != 0; t = t->next)
		;
	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	memcpy(t->name, name, sizeof(t->name));
	t->credit_us = CREDIT_US;
	t->next = a->tenants;
	a->tenants = t;
	return t;
}

/* ---- time ---- */

uint64_t tenant_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

bool tenant_waits(struct tenant *t, uint64_t round)
{
	if (t->round != round) {
		t->round = round;
		t->round_us = 0;
	}
	return t->round_us >= ROUND_US;
}

void tenant_charge_us(struct tenant *t, uint64_t us)
{
	t->credit_us -= (int64_t)us;
}

void tenant_charge(struct tenant *t, uint64_t since)
{
	tenant_charge_us(t, tenant_clock() - since);
}

void tenant_spent(struct tenant *t, uint64_t since)
{
	const uint64_t us = tenant_clock() - since;

	t->round_us += us;
	tenant_charge_us(t, us);
}

bool tenant_overdrawn(const struct tenant *t)
{
	return t->credit_us < 0;
}

void tenants_refill(struct agent *a)
{
	const uint64_t now = tenant_clock();
	const int64_t earned = (int64_t)(now - a->tenants_refilled) * CPU_PERCENT / 100;
	bool held = false;

	if (earned == 0)
		return;
	a->tenants_refilled = now;
	for (struct tenant **p = &a->tenants, *t; (t = *p) != NULL;) {
		t->credit_us = t->credit_us + earned > CREDIT_US ? CREDIT_US : t->credit_us + earned;
		if (t->clients == 0 && t->credit_us == CREDIT_US) {
			*p = t->next;
			free(t);
			continue;
		}
		held = held || (t->nheld > 0 && t->credit_us >= 0);
		p = &t->next;
	}
	for (struct client *c = held ? a->clients : NULL; c; c = c->next)
		if (c->held && !tenant_overdrawn(c->tenant))
			client_hold(a, c, false);
}

void tenants_free(struct agent *a)
{
	while (a->tenants) {
		struct tenant *t = a->tenants;

		a->tenants = t->next;
		free(t);
	}
}

/* ---- places ---- */

bool tenant_may(uint32_t has, uint32_t taken, uint32_t all, uint32_t times)
{
	return taken < all && has < (uint64_t)times * (all - taken);
}

/* Of the tenant with the most connections without HELLO the oldest, if nothing has come on it yet; NULL: there is none. */
struct client *tenant_silent(const struct agent *a, const struct tenant *newcomer)
{
	const struct tenant *most = newcomer;
	struct client *c;

	for (const struct tenant *t = a->tenants; t; t = t->next)
		most = t->strangers > most->strangers ? t : most;
	for (c = most->strangers ? a->clients : NULL; c; c = c->next)
		if (c->state == C_STRANGER && c->tenant == most && client_silent(c))
			return c;
	return NULL;
}

void tenant_refused(struct agent *a, struct tenant *t, uint32_t has, uint32_t all, const char *what)
{
	const uint64_t now = agent_now();

	if (t->complained && now - t->complained < COMPLAINT_SECONDS * 1000)
		return;
	t->complained = now;
	agent_log(a, "%s has %u of %u %s: connections of it are closed", t->name, has, all, what);
}
