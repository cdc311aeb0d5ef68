/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/looker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/enforce.h"
#include "agent/internal.h"

#define RAN_TICKS 3u /* a thread that has run so long in its program has left the call in which it stood */

_Static_assert(sizeof(struct look_for) <= 4096, "a pipe takes it whole or not at all");
_Static_assert(sizeof(struct look_answer) <= 4096, "a pipe takes it whole or not at all");

/* The thread's own, as it may outlive the agent's loop. */
struct ends {
	int in, out;
};

/* Has the thread left that call? While it runs it may do so in there, or behind it. */
static bool has_ended(int pid, const struct under_way *o)
{
	const char state = sfs_process_state(o->tid);
	struct sfs_call now;

	if (state == 'Z' || state == 'X')
		return true;
	if (state == '?')
		return syscall(SYS_tgkill, pid, o->tid, 0) < 0 && errno == ESRCH;
	if (!sfs_process_call(o->tid, &now, 0))
		return false;
	if (now.nr == SFS_CALL_RUNNING)
		return sfs_thread_ran(pid, o->tid) >= o->ran + RAN_TICKS;
	/* Nobody knows in which. */
	if (o->call.nr == SFS_CALL_RUNNING)
		return !outsider_usual_call(&now) && now.nr != SYS_io_uring_enter;
	return now.nr != o->call.nr || now.pc != o->call.pc || now.arg[0] != o->call.arg[0] || now.arg[1] != o->call.arg[1] ||
	       now.arg[2] != o->call.arg[2];
}

static bool may_look(int pid)
{
	char path[64], to[8];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	return readlink(path, to, sizeof(to)) > 0;
}

/* False: there is no room for it. */
static bool add_found(struct look_answer *r, int pid, uint32_t file, enum sfs_opened has)
{
	if (r->nfound == LOOKER_FOUND)
		return false;
	r->found[r->nfound++] = (struct look_found){pid, file, has != SFS_OPENED_READ};
	return true;
}

/* Of one of which we may not look it is not said that it has the file: it would have it for ever. */
static void look_at_all(const struct look_for *f, struct look_answer *r,
			bool (*at)(int pid, const struct look_for *f, struct look_answer *r))
{
	DIR *dir = opendir("/proc");
	struct dirent *e;

	r->has = dir ? SFS_OPENED_NOT : SFS_OPENED_UNKNOWN;
	while (dir && (e = readdir(dir)) != NULL) {
		const int pid = atoi(e->d_name);

		if (pid <= 0 || pid == getpid() || !may_look(pid) || !sfs_process_mounts_writable(pid, (dev_t)f->dev))
			continue;
		if (!at(pid, f, r)) {
			r->has = SFS_OPENED_UNKNOWN;
			break;
		}
	}
	if (dir)
		closedir(dir);
}

static bool at_one(int pid, const struct look_for *f, struct look_answer *r)
{
	const struct sfs_tables tables = {.all = true};
	const enum sfs_opened has = sfs_process_opened(pid, (dev_t)f->dev, f->who.ino, &tables);

	return has == SFS_OPENED_NOT || add_found(r, pid, 0, has);
}

/* It is about to become another program, about which the one that it is now says nothing. */
static bool in_exec(int pid)
{
	struct sfs_call call;

	return sfs_process_call(pid, &call, 0) && (call.nr == SYS_execve || call.nr == SYS_execveat);
}

/*
 * Also one that has not said HELLO, as the child of a fork: what it has was left to it, and it asks before it uses that. Not the program that had an
 * address of its code there when it left the file.
 */
static bool has_library(int pid, unsigned long left_from)
{
	struct code code;

	code_look(pid, &code);
	return code.library && !code_has(&code, left_from) && !in_exec(pid);
}

static bool at_many(int pid, const struct look_for *f, struct look_answer *r)
{
	struct sfs_sought files[LOOKER_FILES];
	bool room = true;

	for (uint32_t i = 0; i < f->nfiles; i++)
		files[i].ino = f->file[i].ino;
	if (!sfs_process_opened_any(pid, (dev_t)f->dev, files, f->nfiles, NULL) || has_library(pid, NOWHERE))
		return true;
	for (uint32_t i = 0; i < f->nfiles && room; i++)
		room = files[i].has == SFS_OPENED_NOT || add_found(r, pid, i, files[i].has);
	return room;
}

static uint64_t cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void look_for_files(const struct look_for *f, struct look_answer *r)
{
	const uint64_t since = cpu_us();

	memcpy(r->file, f->file, sizeof(r->file));
	r->nfiles = f->nfiles;
	look_at_all(f, r, at_many);
	r->us = cpu_us() - since;
}

static struct look_answer look(const struct look_for *f)
{
	struct look_answer r = {.who = f->who, .has = SFS_OPENED_UNKNOWN};

	if (f->nfiles > 0) {
		look_for_files(f, &r);
		return r;
	}
	if (f->who.pid == 0) {
		look_at_all(f, &r, at_one);
		return r;
	}
	for (uint32_t i = 0; i < f->n; i++) {
		if (has_ended(f->who.pid, &f->open[i]))
			r.ended[r.n++] = f->open[i].number;
	}
	if (r.n < f->n)
		return r;
	r.has = sfs_process_opened(f->who.pid, (dev_t)f->dev, f->who.ino, &f->tables);
	r.left_to_library = f->who.left_from && r.has != SFS_OPENED_NOT && has_library(f->who.pid, f->who.left_from);
	return r;
}

static void *looks(void *arg)
{
	struct ends e = *(struct ends *)arg;
	struct look_for f;

	free(arg);
	while (read(e.in, &f, sizeof(f)) == (ssize_t)sizeof(f)) {
		const struct look_answer r = look(&f);

		if (write(e.out, &r, sizeof(r)) != (ssize_t)sizeof(r))
			break;
	}
	close(e.in);
	close(e.out);
	return NULL;
}

int looker_start(struct looker *l)
{
	struct ends *e = malloc(sizeof(*e));
	int to[2], from[2], err;
	pthread_t thread;

	*l = (struct looker){-1, -1};
	if (!e)
		return -ENOMEM;
	if (pipe2(to, O_CLOEXEC) < 0) {
		free(e);
		return -errno;
	}
	if (pipe2(from, O_CLOEXEC) < 0) {
		err = -errno;
		goto none;
	}
	*e = (struct ends){to[0], from[1]};
	if (fcntl(to[1], F_SETFL, O_NONBLOCK) < 0 || fcntl(from[0], F_SETFL, O_NONBLOCK) < 0)
		err = -errno;
	else
		err = -pthread_create(&thread, NULL, looks, e);
	if (err == 0) {
		pthread_detach(thread);
		*l = (struct looker){to[1], from[0]};
		return 0;
	}
	close(from[0]);
	close(from[1]);
none:
	close(to[0]);
	close(to[1]);
	free(e);
	return err;
}

bool looker_ask(const struct looker *l, const struct look_for *f)
{
	return l->in >= 0 && write(l->in, f, sizeof(*f)) == (ssize_t)sizeof(*f);
}

bool looker_hears(const struct looker *l, struct look_answer *r)
{
	return l->out >= 0 && read(l->out, r, sizeof(*r)) == (ssize_t)sizeof(*r);
}

void looker_stop(struct looker *l)
{
	drop_fd(&l->in);
	drop_fd(&l->out);
}
