/* SPDX-License-Identifier: Apache-2.0 */
/* What calls cost in a directory: the probe (advise_probe.c) in a directory of its own there, without the library and in each mode. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advise.h"
#include "control/fsprobe.h"
#include "launch.h"
#include "local_agent.h"
#include "relink/relink.h"

#define POOL_BYTES (96ull << 20)
#define ROUNDS	   3 /* the least of them counts: what else the machine does makes calls slower, never faster */
#define STARTS	   8

const char *const world_names[WORLDS] = {"kernel", "posix", "sync", "strict"};
const uint32_t cost_bytes[COST_SIZES] = {64, 4096, 65536};

struct bench {
	char dir[PATH_MAX + 32];
	char library[PATH_MAX], config[2 * PATH_MAX];
	struct local_agent agent;
	struct sfs_root root;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* The value of a line of the probe's, or NULL. */
static double *line_of(struct costs *c, const char *name)
{
	static const char *const ops[ADV_OPS] = {"read", "append", "overwrite"};
	char wanted[32];

	for (int op = 0; op < ADV_OPS; op++)
		for (int i = 0; i < COST_SIZES; i++) {
			snprintf(wanted, sizeof(wanted), "%s-%u", ops[op], cost_bytes[i]);
			if (strcmp(name, wanted) == 0)
				return &c->op[op][i];
		}
	return strcmp(name, "fsync") == 0	 ? &c->fsync
	       : strcmp(name, "fsync-byte") == 0 ? &c->fsync_byte
	       : strcmp(name, "name") == 0	 ? &c->name
	       : strcmp(name, "attribute") == 0	 ? &c->attribute
	       : strcmp(name, "lock") == 0	 ? &c->lock
	       : strcmp(name, "pass") == 0	 ? &c->pass
	       : strcmp(name, "grant") == 0	 ? &c->grant
	       : strcmp(name, "file") == 0	 ? &c->file
						 : NULL;
}

static void least(double *to, double v)
{
	if (*to == 0 || v < *to)
		*to = v > 1e-9 ? v : 1e-9;
}

/* In the child: become the probe. */
static void become(const struct bench *b, enum world w, bool first, const char *option, const char *where)
{
	if (w != KERNEL) {
		char config[sizeof(b->config) + 16];

		snprintf(config, sizeof(config), "%s:%s", world_names[w], b->config);
		if (setenv("LD_PRELOAD", b->library, 1) || setenv("SPLITFS_CONFIG", config, 1) ||
		    (first && setenv("SPLITFS_GRANT", "first", 1)))
			_exit(1);
	} else {
		unsetenv("LD_PRELOAD");
		unsetenv("SPLITFS_CONFIG");
	}
	execl("/proc/self/exe", "splitfs", "advise", option, where, (char *)NULL);
	_exit(1);
}

static int ended(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* first: each call is to be the library's; whether it would be is counted elsewhere. */
static int probe(const struct bench *b, enum world w, bool first, struct costs *c)
{
	char name[32];
	double ns;
	int out[2];
	pid_t pid;
	FILE *f;

	if (pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		become(b, w, first, first ? "--probe" : "--probe-files", b->dir);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	while (f && fscanf(f, "%31s %lf", name, &ns) == 2) {
		double *to = line_of(c, name);

		if (to)
			least(to, ns);
	}
	if (f)
		fclose(f);
	return pid < 0 ? -EAGAIN : ended(pid);
}

static double microseconds(const struct rusage *u)
{
	return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e6 + (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/* Whole processes; the mean of a few, because the agent's share falls between them. */
static int starts(const struct bench *b, enum world w, struct costs *c)
{
	char file[PATH_MAX + 64];
	struct rusage from, to;
	int err = 0;

	snprintf(file, sizeof(file), "%s/once", b->dir);
	getrusage(RUSAGE_CHILDREN, &from);
	for (int i = 0; i < STARTS && !err; i++) {
		const pid_t pid = fork();

		if (pid == 0)
			become(b, w, false, "--probe-once", file);
		err = pid < 0 ? -errno : ended(pid);
	}
	getrusage(RUSAGE_CHILDREN, &to);
	least(&c->start, (microseconds(&to) - microseconds(&from)) * 1e3 / STARTS);
	return err;
}

static int measure(struct bench *b, struct cost_table *t, struct sfs_why *why)
{
	const struct local_agent_options how = {.pool_bytes = POOL_BYTES, .chunk_bytes = SFS_DEFAULT_CHUNK_BYTES};
	int err = launch_library(NULL, "libsplit.so", b->library, why);

	if (!err)
		err = local_agent_get(&b->agent, &b->root, &how, why);
	if (err)
		return err;
	if (snprintf(b->config, sizeof(b->config), "%s:%s", b->root.path, b->agent.dir) >= (int)sizeof(b->config))
		err = -ENAMETOOLONG;
	for (int round = 0; round < ROUNDS && !err; round++)
		for (enum world w = KERNEL; w < WORLDS && !err; w++) {
			err = probe(b, w, true, &t->world[w]);
			if (!err)
				err = probe(b, w, false, &t->world[w]);
			if (!err)
				err = starts(b, w, &t->world[w]);
		}
	local_agent_put(&b->agent, &b->root);
	if (err)
		return sfs_fail(why, err,
				"what calls cost in %s can't be measured; see above, or leave it out with --no-estimate",
				b->root.path);
	t->measured = true;
	return 0;
}

static int look(struct advise_place *place, struct bench *b, struct cost_table *table, struct sfs_why *why)
{
	int err = sfs_root_open(&b->root, b->dir, true, why), provider;

	if (err)
		return err;
	place->dax = sfs_probe_dax(b->root.fd) == SFS_DAX_SYNC;
	provider = relink_probe(b->root.ctl);
	snprintf(place->provider, sizeof(place->provider), "%s",
		 relink_provider_name(provider < 0 ? RELINK_NONE : (enum relink_provider)provider));
	if (table)
		err = measure(b, table, why);
	sfs_root_close(&b->root);
	return err;
}

int advise_measure(struct advise_place *place, struct cost_table *table, struct sfs_why *why)
{
	struct bench b = {0};
	int err;

	snprintf(b.dir, sizeof(b.dir), "%s/.splitfs-advise-XXXXXX", place->dir);
	if (!mkdtemp(b.dir))
		return sfs_fail(why, -errno, "make a directory in %s: %s", place->dir, strerror(errno));
	err = look(place, &b, table, why);
	nftw(b.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return err;
}
