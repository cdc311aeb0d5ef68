/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command with a library of ours preloaded. */
#ifndef SFS_LAUNCH_H
#define SFS_LAUNCH_H

#include <limits.h>
#include <stddef.h>

struct sfs_why;

/* A variable that the command gets; separator: what stands between it and a value that is there already, 0: that one goes. */
struct launch_env {
	const char *name, *value;
	char separator;
};

/* Absolute path of the library: `given`, or the one of that name beside this program. 0, or a negative errno value with a sentence. */
int launch_library(const char *given, const char *name, char path[PATH_MAX], struct sfs_why *why);
/* Runs argv, passes signals on, and returns its exit status as a shell has it; 1 when it can't be started. */
int launch_command(char **argv, const struct launch_env *env, size_t n);

#endif
