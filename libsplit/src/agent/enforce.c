/* SPDX-License-Identifier: Apache-2.0 */
/* enforce.h */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"

#define STILL_MS 1000 /* so long a thread that has asked may take to stand still */

/* ---- the decision ---- */

/* The file's writes become durable by themselves, by whoever they are made. It stays so: chattr -S ends it. */
static bool make_durable(int fd)
{
	int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return false;
	if (flags & FS_SYNC_FL)
		return true;
	flags |= FS_SYNC_FL;
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}

/* What is in a control directory is the node's own programs' to write (`splitfs status`, `splitfs recover`). */
static bool in_control_dir(int fd)
{
	char name[SFS_UNSERVED_PATH];

	refused_file(fd, name);
	return strstr(name, "/" SFS_CONTROL_DIR "/") != NULL;
}

/* Has the code made the call that the library stands before? What can't be seen is not held against anybody. */
static bool served(struct agent *a, const struct question *q, const struct sfs_call *call)
{
	struct code code;

	code_look(q->pid, &code);
	if (code.n == 0 && sfs_process_start(q->pid) == 0)
		return true; /* it has ended */
	if (q->client && code.library)
		processes_code(&a->outsiders, q->pid, &code);
	return call->nr == SFS_CALL_RUNNING ? code.library : code_has(&code, call->pc);
}

static enum sfs_unserved decide(struct agent *a, const struct question *q, char pod[SFS_UNSERVED_POD])
{
	char cgroups[SFS_CGROUPS_MAX];
	struct sfs_call call;
	enum sfs_unserved policy;

	sfs_process_cgroups(q->pid, cgroups);
	tenant_pod(cgroups, pod);
	pthread_mutex_lock(&a->enforcer.lock);
	policy = policies_of(&a->enforcer.policies, pod);
	pthread_mutex_unlock(&a->enforcer.lock);
	if (policy == UNSERVED_ALLOW)
		return UNSERVED_ALLOW;
	sfs_process_call(q->tid, &call, STILL_MS);
	if (!outsider_writes(q->tid, &call) || served(a, q, &call) || (!*pod && in_control_dir(q->fd)))
		return UNSERVED_ALLOW;
	/* A file system without that attribute can't make it durable. */
	return policy == UNSERVED_DURABLE && make_durable(q->fd) ? UNSERVED_DURABLE : UNSERVED_REFUSE;
}

/* It is let go on, after those who have the file have brought in what is staged. */
static void pass_on(struct agent *a, const struct question *q)
{
	if (write(a->outsiders.questions[1], q, sizeof(*q)) != (ssize_t)sizeof(*q))
		listener_answer(&a->outsiders, q->fd, true);
}

/* Is the answer still ours? */
static bool take_now(struct enforcer *e)
{
	bool ours;

	pthread_mutex_lock(&e->lock);
	ours = e->now.fd >= 0;
	e->now.fd = -1;
	pthread_mutex_unlock(&e->lock);
	return ours;
}

static bool next_question(struct enforcer *e, struct question *q)
{
	bool there;

	pthread_mutex_lock(&e->lock);
	there = read(e->questions[0], q, sizeof(*q)) == (ssize_t)sizeof(*q);
	if (there) {
		e->now = *q;
		e->now_since = agent_now();
		e->taken++;
	}
	pthread_mutex_unlock(&e->lock);
	return there;
}

static void look(struct agent *a, const struct question *q)
{
	struct enforcer *e = &a->enforcer;
	char pod[SFS_UNSERVED_POD];
	const enum sfs_unserved did = decide(a, q, pod);

	if (!take_now(e))
		return;
	if (did != UNSERVED_ALLOW)
		refused_note(a, q, did, pod);
	if (did == UNSERVED_REFUSE)
		listener_answer(&a->outsiders, q->fd, false);
	else
		pass_on(a, q);
}

/* Since when the thread has stood before the same question; 0: it does not. Under the lock. */
static uint64_t stands_since(struct enforcer *e, uint64_t now)
{
	int waiting = 0;

	if (e->now.fd >= 0)
		return e->now_since;
	/* It may also stand before it takes one: it writes the list to a disk that does not answer. */
	if (e->questions[0] < 0 || ioctl(e->questions[0], FIONREAD, &waiting) < 0 || waiting == 0)
		e->idle_since = 0;
	else if (e->idle_since == 0 || e->idle_at != e->taken) {
		e->idle_since = now;
		e->idle_at = e->taken;
	}
	return e->idle_since;
}

int enforce_let_go(struct agent *a)
{
	struct enforcer *e = &a->enforcer;
	const uint64_t now = agent_now();
	struct question q;
	uint64_t since;
	bool looks, late;

	pthread_mutex_lock(&e->lock);
	since = stands_since(e, now);
	late = since && now - since >= OUTSIDER_WAIT_MS;
	looks = late && e->now.fd >= 0;
	q = e->now;
	if (late) {
		e->now.fd = -1;
		e->idle_since = 0; /* what comes next has not waited yet */
	}
	pthread_mutex_unlock(&e->lock);
	if (!late)
		return since ? OUTSIDER_WAIT_MS / 4 : -1;
	fprintf(stderr,
		"splitfs agent %s: looks at programs without the library take too long: who opens files meanwhile is not "
		"refused\n",
		a->root.path);
	if (looks)
		pass_on(a, &q);
	while (read(e->questions[0], &q, sizeof(q)) == (ssize_t)sizeof(q))
		pass_on(a, &q);
	return -1;
}

static void *look_thread(void *arg)
{
	struct agent *a = arg;
	struct enforcer *e = &a->enforcer;
	struct pollfd p[2] = {{e->questions[0], POLLIN, 0}, {e->stop_fd, POLLIN, 0}};
	struct question q;

	pthread_setname_np(pthread_self(), "splitfs-look");
	while (poll(p, 2, refused_write(a, false)) >= 0 || errno == EINTR) {
		if (p[1].revents)
			return NULL;
		if (next_question(e, &q))
			look(a, &q);
	}
	return NULL;
}

/* ---- marks ---- */

/* Is ROOT a file system of its own? Then every open on it is one of the volume. */
static bool whole_file_system(const struct agent *a)
{
	char line[PATH_MAX + 256], root[PATH_MAX], info[64];
	int id = -1, n;
	FILE *f;

	snprintf(info, sizeof(info), "/proc/self/fdinfo/%d", a->root.fd);
	f = fopen(info, "re");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "mnt_id: %d", &id);
	if (f)
		fclose(f);
	f = fopen("/proc/self/mountinfo", "re");
	while (f && fgets(line, sizeof(line), f)) {
		char at[PATH_MAX];

		if (sscanf(line, "%d %*d %*s %4095s %4095s", &n, root, at) == 3 && n == id) {
			struct stat here, there;

			fclose(f);
			return strcmp(root, "/") == 0 && fstat(a->root.fd, &here) == 0 && stat(at, &there) == 0 &&
			       here.st_ino == there.st_ino && here.st_dev == there.st_dev;
		}
	}
	if (f)
		fclose(f);
	return false;
}

static int mark(struct agent *a, bool on)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", a->root.fd);
	return fanotify_mark(a->outsiders.opens_fd, (on ? FAN_MARK_ADD : FAN_MARK_REMOVE) | FAN_MARK_FILESYSTEM, FAN_OPEN_PERM,
			     AT_FDCWD, path);
}

static const char *set_mark(struct agent *a, bool on)
{
	if (a->outsiders.opens_fd < 0)
		return "the kernel does not ask this agent about opens (that takes CAP_SYS_ADMIN)";
	if (!whole_file_system(a))
		return "the volume is no file system of its own";
	return mark(a, on) == 0 ? NULL : strerror(errno);
}

static void apply(struct agent *a)
{
	struct enforcer *e = &a->enforcer;
	const bool wanted = policies_any(&e->policies);
	enum sfs_enforcement state = wanted ? ENFORCEMENT_ON : ENFORCEMENT_OFF;

	if (wanted != e->marked) {
		const char *wrong = set_mark(a, wanted);

		if (wrong)
			agent_log(a, "programs without the library can't be refused: %s", wrong);
		if (wrong && wanted)
			state = ENFORCEMENT_CANNOT;
		else
			e->marked = wanted;
	}
	e->list.state = state;
}

void enforce_reload(struct agent *a)
{
	struct enforcer *e = &a->enforcer;
	_Alignas(struct inotify_event) char events[4096];
	enum sfs_enforcement before;
	struct sfs_why why = {0};
	bool tell;

	while (e->watch_fd >= 0 && read(e->watch_fd, events, sizeof(events)) > 0)
		;
	pthread_mutex_lock(&e->lock);
	before = e->list.state;
	if (a->config->unserved_by && policies_load(&e->policies, a->config->unserved_by, &why))
		agent_log(a, "%s", why.text);
	apply(a);
	tell = e->list.state != before;
	pthread_mutex_unlock(&e->lock);
	if (tell)
		refused_write(a, true);
}

bool enforce_marked(struct agent *a)
{
	bool marked;

	pthread_mutex_lock(&a->enforcer.lock);
	marked = a->enforcer.marked;
	pthread_mutex_unlock(&a->enforcer.lock);
	return marked;
}

/* ---- start and end ---- */

/* The file is replaced by renaming: its directory is watched. */
static int watch_policies(struct agent *a)
{
	struct enforcer *e = &a->enforcer;
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", a->config->unserved_by);
	e->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (e->watch_fd < 0 || inotify_add_watch(e->watch_fd, dirname(dir), IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE) < 0)
		return -errno;
	a->policies_src = (struct source){SRC_POLICIES, NULL};
	return agent_watch(a, e->watch_fd, EPOLLIN, &a->policies_src);
}

int enforce_start(struct agent *a)
{
	struct enforcer *e = &a->enforcer;
	int err = 0;

	/* What the agent before us said of this is void. */
	refused_write(a, true);
	e->policies.others = a->config->unserved;
	if (!a->config->unserved_by && a->config->unserved == UNSERVED_ALLOW && !a->outsiders.gate) {
		listener_decide(a);
		return 0;
	}
	e->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (e->stop_fd < 0)
		return -errno;
	if (a->config->unserved_by)
		err = watch_policies(a);
	if (!err)
		err = -pthread_create(&e->thread, NULL, look_thread, a);
	e->started = !err;
	if (err)
		return err;
	enforce_reload(a);
	/* The agent before us may have left its mark in the group. */
	if (a->outsiders.gate && !enforce_marked(a) && mark(a, false) < 0 && errno != ENOENT)
		agent_log(a, "end the watch of all opens: %s", strerror(errno));
	listener_decide(a);
	gate_ask_again(a);
	return 0;
}

void enforce_stop(struct agent *a)
{
	struct enforcer *e = &a->enforcer;
	const uint64_t one = 1;
	struct timespec until;

	if (!e->started || write(e->stop_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		return;
	/* It may be looking at a process that hangs; then it ends with ours. */
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	e->started = pthread_clockjoin_np(e->thread, NULL, CLOCK_MONOTONIC, &until) != 0;
}

void enforce_free(struct agent *a)
{
	struct enforcer *e = &a->enforcer;

	if (e->started)
		return;
	drop_fd(&e->stop_fd);
	drop_fd(&e->watch_fd);
	drop_fd(&e->questions[0]);
	drop_fd(&e->questions[1]);
	policies_free(&e->policies);
}
