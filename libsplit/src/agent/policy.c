/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct policies *p, const char *line, const char *path, struct sfs_why *why)
{
	struct pod_policy one = {.pod = ""}, *bigger;
	char policy[16], rest;

	if (sscanf(line, "%63s %15s %c", one.pod, policy, &rest) != 2 || !sfs_unserved_parse(policy, &one.policy))
		return sfs_fail(why, -EINVAL, "%s: a line is not the UID of a pod and 'refuse', 'durable' or 'allow'", path);
	bigger = reallocarray(p->pods, p->n + 1, sizeof(*bigger));
	if (!bigger)
		return sfs_fail(why, -ENOMEM, "out of memory");
	p->pods = bigger;
	p->pods[p->n++] = one;
	return 0;
}

int policies_load(struct policies *p, const char *path, struct sfs_why *why)
{
	struct policies fresh = {.others = p->others};
	FILE *f = fopen(path, "re");
	char line[256];
	int err = 0;

	if (!f && errno != ENOENT)
		return sfs_fail(why, -errno, "open %s: %s", path, strerror(errno));
	while (f && !err && fgets(line, sizeof(line), f))
		err = add(&fresh, line, path, why);
	if (f)
		fclose(f);
	if (err) {
		policies_free(&fresh);
		return err;
	}
	policies_free(p);
	*p = fresh;
	return 0;
}

void policies_free(struct policies *p)
{
	free(p->pods);
	p->pods = NULL;
	p->n = 0;
}

enum sfs_unserved policies_of(const struct policies *p, const char *pod)
{
	for (uint32_t i = 0; *pod && i < p->n; i++)
		if (strcmp(p->pods[i].pod, pod) == 0)
			return p->pods[i].policy;
	return p->others;
}

bool policies_any(const struct policies *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->pods[i].policy != UNSERVED_ALLOW)
			return true;
	return p->others != UNSERVED_ALLOW;
}
