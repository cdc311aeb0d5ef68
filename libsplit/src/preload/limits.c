/* SPDX-License-Identifier: Apache-2.0 */
/* A new limit on file sizes holds for the writes that we serve, too. */
#include "preload.h"

#include <sys/resource.h>

WRAPPER int w_setrlimit(int resource, const struct rlimit *limit)
{
	int r = REAL_AS(int (*)(int, const struct rlimit *), setrlimit)(resource, limit);

	if (r == 0 && sfs_active())
		sfs_limits_changed();
	return r;
}
EXPORT(setrlimit, w_setrlimit);
EXPORT(setrlimit64, w_setrlimit);

WRAPPER int w_prlimit(pid_t pid, int resource, const struct rlimit *limit, struct rlimit *old)
{
	typedef int (*prlimit_fn)(pid_t, int, const struct rlimit *, struct rlimit *);
	int r = REAL_AS(prlimit_fn, prlimit)(pid, resource, limit, old);

	if (r == 0 && limit && sfs_active())
		sfs_limits_changed();
	return r;
}
EXPORT(prlimit, w_prlimit);
EXPORT(prlimit64, w_prlimit);
