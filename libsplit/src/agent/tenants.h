/* SPDX-License-Identifier: Apache-2.0 */
/* What all clients of a pod may take together; part of agent/internal.h. */
#ifndef SFS_AGENT_TENANTS_H
#define SFS_AGENT_TENANTS_H

#include <stdbool.h>
#include <stdint.h>

#define TENANT_NAME 128
#define TENANT_POD  64

struct agent;
struct client;

/* A pod, or whatever tells clients apart. */
struct tenant {
	struct tenant *next;
	char name[TENANT_NAME];
	uint32_t clients, strangers, holds, looks;
	uint32_t chunks;     /* full-size staging files that it has */
	uint32_t extra;	     /* of those, beyond its part of the pool: for a write that is to be whole */
	uint32_t logs;	     /* blocks of its logs */
	uint32_t nheld;	     /* clients whose requests wait */
	uint64_t round;	     /* the last one in which something was done for it */
	uint64_t round_us;   /* spent in that */
	uint64_t turn;	     /* of its last recovery (worker.c) */
	int64_t credit_us;   /* below 0: its requests wait */
	uint64_t complained; /* ms: when it was last said that it is refused something; 0: never */
};

void tenants_start(struct agent *a);
/* cgroups: /proc/PID/cgroup of the client; own: the name of the agent's own container. */
void tenant_name(const char *cgroups, const char *own, uint32_t uid, char name[TENANT_NAME]);
/* The UID of the pod, with the dashes that Kubernetes writes; "": of none. */
void tenant_pod(const char *cgroups, char uid[TENANT_POD]);
/* NULL: no memory. */
struct tenant *tenant_of(struct agent *a, int pid, uint32_t uid);
uint64_t tenant_clock(void); /* us */
/* Has it had its part of this round of the loop? */
bool tenant_waits(struct tenant *t, uint64_t round);
/* So much time since then was its; the second: and not of its part of the round. The third: so many us, which nobody waited for. */
void tenant_spent(struct tenant *t, uint64_t since);
void tenant_charge(struct tenant *t, uint64_t since);
void tenant_charge_us(struct tenant *t, uint64_t us);
bool tenant_overdrawn(const struct tenant *t);
void tenants_refill(struct agent *a);
void tenants_free(struct agent *a);
/* May one that has so many take one more of `all`, of which `taken` are taken? It may have `times` of what it leaves free. */
bool tenant_may(uint32_t has, uint32_t taken, uint32_t all, uint32_t times);
/* Say that it gets no more of something; once in a while, for who is refused tries again. */
void tenant_refused(struct agent *a, struct tenant *t, uint32_t has, uint32_t all, const char *what);
/* Who is put off, so that a newcomer may come in; NULL: nobody. */
struct client *tenant_silent(const struct agent *a, const struct tenant *newcomer);

#endif
