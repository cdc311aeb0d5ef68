/* SPDX-License-Identifier: Apache-2.0 */
#include "local_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "control/store.h"

#define PAUSE_MS     50
#define TRIES	     200 /* ten seconds for an agent that is starting or ending */
#define PUT_TRIES    1200
#define READY_LENGTH 6

static void pause_ms(long ms)
{
	const struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&ts, NULL);
}

static int try_connect(const char *dir, dev_t dev, struct sfs_why *why)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char path[SFS_SOCKET_PATH];
	int err = sfs_agent_socket_path(path, dir, major(dev), minor(dev), why), fd;

	if (err)
		return err;
	memcpy(addr.sun_path, path, sizeof(addr.sun_path));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	err = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ? -errno : 0;
	close(fd);
	return err;
}

/* A directory for the socket alone. Programs that change their user must reach it when root starts them. */
static int private_dir(struct local_agent *la, struct sfs_why *why)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n = -1;

	/* 40 bytes are enough for the rest of the socket's name. */
	if (runtime && runtime[0] == '/' && strlen(runtime) < SFS_SOCKET_PATH - 60 && access(runtime, W_OK | X_OK) == 0 &&
	    !strpbrk(runtime, ":;"))
		n = snprintf(la->dir, sizeof(la->dir), "%s/splitfs.XXXXXX", runtime);
	if (n < 0)
		snprintf(la->dir, sizeof(la->dir), "/tmp/splitfs-%u.XXXXXX", (unsigned)geteuid());
	if (!mkdtemp(la->dir))
		return sfs_fail(why, -errno, "make the directory %s: %s", la->dir, strerror(errno));
	if (geteuid() == 0 && chmod(la->dir, 0711) < 0)
		return sfs_fail(why, -errno, "chmod %s: %s", la->dir, strerror(errno));
	return 0;
}

static int hold_users(struct local_agent *la, int flags)
{
	char path[PATH_MAX + 8];

	snprintf(path, sizeof(path), "%s/users", la->dir);
	la->users = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
	if (la->users < 0)
		return -errno;
	if (flock(la->users, LOCK_SH | LOCK_NB) < 0) {
		close(la->users);
		la->users = -1;
		return -EAGAIN; /* it is about to end */
	}
	return 0;
}

static void exec_agent(const struct local_agent *la, const struct sfs_root *r, const struct local_agent_options *o, int out)
{
	const pid_t parent = getppid();
	char pool[32], chunk[32];
	int null;

	/* A session of its own: a key on the terminal ends the command, and the agent outlives it to recover it. */
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	null = open("/dev/null", O_RDONLY);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	snprintf(pool, sizeof(pool), "%llu", (unsigned long long)o->pool_bytes);
	snprintf(chunk, sizeof(chunk), "%llu", (unsigned long long)o->chunk_bytes);
	execl("/proc/self/exe", "splitfs", "agent", r->path, "--agents-dir", la->dir, "--private", "--pool-bytes", pool,
	      "--chunk-bytes", chunk, "--unserved", sfs_unserved_name(o->unserved), (char *)NULL);
	fprintf(stderr, "splitfs: start the agent: %s\n", strerror(errno));
	_exit(1);
}

static void remove_dir(const struct local_agent *la)
{
	char path[PATH_MAX + 8];

	snprintf(path, sizeof(path), "%s/users", la->dir);
	unlink(path);
	rmdir(la->dir);
}

/* 0, -EAGAIN when somebody else was quicker, another error with a sentence (the agent has said more). */
static int start(struct local_agent *la, const struct sfs_root *r, const struct local_agent_options *o, struct sfs_why *why)
{
	struct sfs_holder holder;
	char said[READY_LENGTH];
	size_t got = 0;
	int out[2], err, status;

	err = private_dir(la, why);
	if (!err)
		err = hold_users(la, O_CREAT);
	if (err)
		return sfs_fail(why, err, "make %s/users: %s", la->dir, strerror(-err));
	if (pipe2(out, O_CLOEXEC) < 0)
		return sfs_fail(why, -errno, "make a pipe: %s", strerror(errno));
	la->pid = fork();
	if (la->pid < 0) {
		err = sfs_fail(why, -errno, "fork: %s", strerror(errno));
		close(out[0]);
		close(out[1]);
		remove_dir(la);
		return err;
	}
	if (la->pid == 0)
		exec_agent(la, r, o, out[1]);
	close(out[1]);
	while (got < sizeof(said)) {
		const ssize_t n = read(out[0], said + got, sizeof(said) - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	close(out[0]);
	if (got == sizeof(said) && memcmp(said, "ready\n", sizeof(said)) == 0)
		return 0;
	while (waitpid(la->pid, &status, 0) < 0 && errno == EINTR)
		;
	la->pid = 0;
	close(la->users);
	la->users = -1;
	remove_dir(la);
	if (sfs_root_holder(r, &holder) && strcmp(holder.what, "agent") == 0)
		return -EAGAIN;
	return sfs_fail(why, -EIO, "the agent of %s did not start; it said why above", r->path);
}

/* The first one that answers. */
static int find_or_start(struct local_agent *la, const struct sfs_root *r, const struct local_agent_options *o,
			 struct sfs_why *why)
{
	struct sfs_holder holder;
	int err = -EAGAIN;

	for (int i = 0; i < TRIES; i++, pause_ms(PAUSE_MS)) {
		memset(la, 0, sizeof(*la));
		la->users = -1;
		if (!sfs_root_holder(r, &holder)) {
			err = start(la, r, o, why);
			if (err != -EAGAIN)
				return err;
			continue;
		}
		if (strcmp(holder.what, "agent") != 0 || holder.agents_dir[0] != '/')
			continue; /* a recovery, or an agent that does not listen yet */
		if (snprintf(la->dir, sizeof(la->dir), "%s", holder.agents_dir) >= (int)sizeof(la->dir))
			return sfs_fail(why, -ENAMETOOLONG, "%s: path too long", holder.agents_dir);
		err = hold_users(la, 0); /* only a private agent has that file */
		if (err == -EAGAIN)
			continue;
		err = try_connect(la->dir, r->dev, why);
		if (!err)
			return 0;
		if (la->users >= 0)
			close(la->users);
		if (err != -ECONNREFUSED && err != -ENOENT)
			return sfs_fail(why, err, "connect to the agent of %s in %s: %s", r->path, la->dir, strerror(-err));
	}
	return sfs_fail(why, -EBUSY, "%s is in use by 'splitfs %s' with process id %d, which does not answer", r->path,
			holder.what, holder.pid);
}

int local_agent_get(struct local_agent *la, const struct sfs_root *r, const struct local_agent_options *o, struct sfs_why *why)
{
	struct sfs_unserved_list list;
	int err = find_or_start(la, r, o, why);

	if (err || o->unserved == UNSERVED_ALLOW)
		return err;
	sfs_unserved_read(r, &list);
	if (list.state == ENFORCEMENT_ON)
		return 0;
	local_agent_put(la, r);
	if (list.state == ENFORCEMENT_CANNOT)
		return sfs_fail(
			why, -EPERM,
			"programs without the library can't be kept from writing to %s: that takes root (CAP_SYS_ADMIN), and a "
			"directory that a file system of its own is mounted on",
			r->path);
	return sfs_fail(why, -EBUSY,
			"an agent that lets programs without the library write serves %s already; end what uses it, or leave "
			"--unserved out",
			r->path);
}

static bool anybody_lives(const struct sfs_root *r)
{
	struct sfs_numbers logs, leases;
	bool lives = false;

	if (sfs_log_list(r, &logs, &leases, NULL))
		return false;
	for (uint32_t i = 0; i < leases.n && !lives; i++) {
		struct sfs_leasefile l;
		int fd;

		if (sfs_lease_load(r, leases.v[i], &l, NULL))
			continue;
		fd = sfs_log_open(r, leases.v[i], O_RDONLY);
		if (fd >= 0) {
			lives = sfs_lease_alive(&l.head, fd);
			close(fd);
		}
		sfs_lease_close(&l);
	}
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	return lives;
}

void local_agent_put(struct local_agent *la, const struct sfs_root *r)
{
	int status;

	if (la->users >= 0)
		close(la->users);
	la->users = -1;
	if (!la->pid)
		return;
	kill(la->pid, SIGTERM);
	for (int i = 0; i < PUT_TRIES; i++) {
		if (waitpid(la->pid, &status, WNOHANG) != 0)
			return;
		/* What the command left running keeps the agent; it ends with the last of them. */
		if (i % 4 == 3 && anybody_lives(r))
			return;
		pause_ms(i < 20 ? 5 : PAUSE_MS);
	}
}
