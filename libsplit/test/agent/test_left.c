/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process with the library leaves a file that it has open for writing to its next program, or to a child that it has spawned, and says so
 * (SFS_OPEN_LEFT). That counts as a program without the library from then on, so who stages for the file gives it up first; until it is
 * seen that the new program has the library, or until it has ended.
 */
#include "outsider.h"

#include <spawn.h>
#include <stdbool.h>
#include <sys/fanotify.h>
#include <sys/personality.h>
#include <sys/syscall.h>

#include "control/store.h"

#define LEFT 5 /* the number of the descriptor in the new program */

static struct world w;
static struct played_agent a;
static struct world_file f;
static struct played c;
static char self[256];

static void granted(void)
{
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
}

/* The new program: it says that it is there, and ends when it is told. */
static int program(const char *kind)
{
	char ch;

	if (strcmp(kind, "aware") == 0)
		played_map_library();
	return fcntl(LEFT, F_GETFL) >= 0 && write(1, "p", 1) == 1 && read(0, &ch, 1) == 0 ? 0 : 1;
}

/* With the library, as far as can be seen. It has the file open, and goes on when it is told. */
static struct outsider with_library(void)
{
	struct outsider o = outsider_fork();
	char path[256], ch;
	int fd;

	if (o.pid > 0) {
		CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
		return o;
	}
	played_library = NULL;
	played_map_library();
	snprintf(path, sizeof(path), "%s/f", w.dir);
	fd = open(path, O_WRONLY | O_APPEND);
	if (fd < 0 || dup2(fd, LEFT) != LEFT || close(fd) < 0 || write(1, "o", 1) != 1 || read(0, &ch, 1) != 1)
		_exit(1);
	return o;
}

static void say(unsigned what)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/f", w.dir);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, what);
	if (fd < 0 || close(fd) < 0 || write(1, "s", 1) != 1)
		_exit(1);
}

/* The same by the file itself (LEFT); wait: for the answer. */
static int show(int fd, unsigned what, bool wait)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_LEFT, .a = what, .d = SFS_PROTO_NEWEST};
	const int sock = played_connect(&a);

	m.b = (uintptr_t)played_library + 1;
	CHECK(sock >= 0 && played_send(sock, &m, sizeof(m), &fd, 1) == 0);
	if (!wait)
		return sock;
	CHECK_EQ(played_recv(sock, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.type, SFS_MSG_LEFT);
	close(sock);
	return m.status;
}

static void go_on(struct outsider *o)
{
	CHECK_EQ(write(o->in, "x", 1), 1);
}

/* It waits for who stages, and only for that. */
static void given_up_for(struct outsider *o)
{
	struct sfs_msg m;

	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK_EQ(outsider_said(o, 100), 0);
	played_revoked(&c, &m, true);
	CHECK_EQ(outsider_said(o, PATIENCE), 's');
}

static struct outsider left_to(char *kind)
{
	struct outsider o = with_library();

	if (o.pid == 0) {
		say(SFS_OPEN_LEFT);
		execl(self, self, kind, NULL);
		_exit(1);
	}
	granted();
	go_on(&o);
	given_up_for(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	return o;
}

/* Nobody has it any more. The next one is about another file, of which the kernel does not ask yet. */
static void end(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/f", w.dir);
	CHECK(unlink(path) == 0 && close(f.fd) == 0);
	f = world_file(&w, "f", 'o', 100);
}

/* It is asked to look again when nobody else writes to the file any more. */
static void alone_again(void)
{
	played_give_up(&c, &f);
	granted();
}

/* It counts as a program without the library until it has ended. */
static void shared_until_its_end(struct outsider *o)
{
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	outsider_end(o);
	alone_again();
	end();
}

static void to_unaware(void)
{
	struct outsider o = left_to("unaware");

	usleep(500000);
	shared_until_its_end(&o);
}

static void to_aware(void)
{
	struct outsider o = left_to("aware");

	if (played_acquire(&c, &f, 0) == SFS_DELEG_SHARED)
		alone_again();
	outsider_end(&o);
	end();
}

static void spawn(char *kind)
{
	char *const args[] = {self, kind, NULL};
	pid_t pid;
	int status;

	if (posix_spawn(&pid, self, NULL, NULL, args, (char *[]){NULL}) != 0)
		_exit(1);
	say(SFS_OPEN_SPAWNED);
	close(LEFT);
	_exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1);
}

static void to_child(void)
{
	struct outsider o = with_library();
	struct sfs_msg m;

	if (o.pid == 0)
		spawn("unaware");
	granted();
	go_on(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c, &m, true);
	CHECK_EQ(outsider_said(&o, PATIENCE), 's');
	usleep(500000);
	shared_until_its_end(&o);
}

/* A child that was not left it is none. */
static void to_none(void)
{
	struct outsider o = with_library();
	struct sfs_msg m;

	if (o.pid == 0) {
		fcntl(LEFT, F_SETFD, FD_CLOEXEC);
		spawn("none");
	}
	granted();
	go_on(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 's');
	CHECK_EQ(played_revoke(&c, &f, 300, &m), -1);
	close(o.in);
	CHECK(waitpid(o.pid, NULL, 0) == o.pid);
	close(o.out);
	end();
}

static void shows(struct outsider *o)
{
	if (o->pid > 0)
		return;
	if (show(LEFT, SFS_OPEN_LEFT, true) != 0 || write(1, "s", 1) != 1)
		_exit(1);
	execl(self, self, "unaware", NULL);
	_exit(1);
}

/* It can't open the file once more. */
static void shown(void)
{
	struct outsider o = with_library();

	shows(&o);
	granted();
	go_on(&o);
	given_up_for(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	usleep(300000);
	shared_until_its_end(&o);
}

/* While nobody may stage for it: who asks next does not get it. */
static void shown_early(void)
{
	struct outsider o = with_library();

	shows(&o);
	go_on(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 's');
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	shared_until_its_end(&o);
}

/* It waits no more, and goes on to its next program. */
static void shown_and_gone(void)
{
	struct outsider o = with_library();
	struct sfs_msg m;
	int sock;

	if (o.pid == 0) {
		sock = show(LEFT, SFS_OPEN_LEFT, false);
		usleep(200000);
		close(sock);
		execl(self, self, "unaware", NULL);
		_exit(1);
	}
	granted();
	go_on(&o);
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	played_revoked(&c, &m, true);
	shared_until_its_end(&o);
}

/*
 * A client that says nothing: its connection ends within execve, before the kernel says that there is another
 * program.
 */
static void by_client(void)
{
	struct outsider o = with_library();
	struct played own;
	int fd;

	if (o.pid == 0) {
		fd = dup(LEFT);
		if (played_hello(&own, &a, SFS_POSIX, 0, fd) != 0 ||
		    (f.fd = LEFT, played_acquire(&own, &f, 0)) != SFS_DELEG_EXCLUSIVE)
			_exit(1);
		fcntl(own.log_fd, F_SETFD, FD_CLOEXEC);
		execl(self, self, "unaware", NULL);
		_exit(1);
	}
	go_on(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	shared_until_its_end(&o);
}

/*
 * The client's next program comes from a slow disk, and nobody has staged when it began: it is found when somebody
 * does.
 */
static void slow_exec(void)
{
	const int slow = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
	struct fanotify_event_metadata m;
	struct fanotify_response go = {.response = FAN_ALLOW};
	struct outsider o = with_library();
	struct played own;

	if (o.pid == 0) {
		if (played_hello(&own, &a, SFS_POSIX, 0, LEFT) != 0)
			_exit(1);
		execl(self, self, "unaware", NULL);
		_exit(1);
	}
	CHECK(slow >= 0 && fanotify_mark(slow, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, self) == 0);
	go_on(&o);
	CHECK_EQ(read(slow, &m, sizeof(m)), sizeof(m));
	granted();
	played_give_up(&c, &f);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	go.fd = m.fd;
	CHECK_EQ(write(slow, &go, sizeof(go)), sizeof(go));
	CHECK(close(m.fd) == 0 && close(slow) == 0);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'p');
	usleep(300000);
	shared_until_its_end(&o);
}

/* Only who may write to the file may say so. */
static void shown_in_vain(void)
{
	const int fd = open(w.dir, O_RDONLY | O_DIRECTORY);
	char path[256];
	int ro;

	snprintf(path, sizeof(path), "%s/f", w.dir);
	CHECK((ro = open(path, O_RDONLY)) >= 0);
	CHECK_EQ(show(fd, SFS_OPEN_LEFT, true), -EACCES);
	CHECK_EQ(show(ro, SFS_OPEN_LEFT, true), -EACCES);
	CHECK(close(fd) == 0 && close(ro) == 0);
	granted();
	end();
}

/* It is left to a child of which nobody knows yet; then that is known, and who has made it has its library. */
static void to_child_before(void)
{
	struct outsider o = with_library();
	char ch;

	if (o.pid == 0) {
		say(SFS_OPEN_LEFT);
		if (read(0, &ch, 1) != 1)
			_exit(1);
		say(SFS_OPEN_SPAWNED); /* there is none */
		_exit(read(0, &ch, 1) == 0 ? 0 : 1);
	}
	granted();
	go_on(&o);
	given_up_for(&o);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	go_on(&o);
	CHECK_EQ(outsider_said(&o, PATIENCE), 's');
	alone_again();
	outsider_end(&o);
	end();
}

int main(int argc, char **argv)
{
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	CHECK(n > 0);
	if (argc == 2)
		return program(argv[1]);
	outsider_world(&w, &a, &f, 100);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	to_unaware();
	/* Where a new program's library is at the address of the last one's nobody sees that it is another one. */
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE))
		to_aware();
	to_child();
	to_none();
	to_child_before();
	shown();
	shown_early();
	shown_and_gone();
	shown_in_vain();
	for (int i = 0; i < 5; i++)
		by_client();
	slow_exec();
	played_close(&c);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
