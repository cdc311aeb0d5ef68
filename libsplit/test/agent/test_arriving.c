/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without the library has been let open a file, and has no descriptor of it yet, because another fanotify group holds it up. Meanwhile
 * others close the file: that is no reason to give it to a client as if nobody had it. And one that has failed to open it is forgotten.
 */
#include "outsider.h"

#include <stdbool.h>
#include <sys/fanotify.h>

enum { GROUPS = 48, LOOKS = 4 };

static struct world w;
static struct played_agent a;
static struct pollfd groups[GROUPS];

/* The kernel asks groups in an order of its own: of several some come behind the agent's, most often. */
static void groups_begin(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/f", w.dir);
	for (int i = 0; i < GROUPS; i++) {
		groups[i] = (struct pollfd){fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC), POLLIN, 0};
		CHECK(groups[i].fd >= 0);
		CHECK_EQ(fanotify_mark(groups[i].fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path), 0);
	}
}

static void groups_end(void)
{
	for (int i = 0; i < GROUPS; i++)
		close(groups[i].fd);
}

/* Who asks by the next question of a group, which *group is told with its descriptor; or 0. */
static pid_t asks(struct fanotify_response *r, int *group, int timeout_ms)
{
	struct fanotify_event_metadata m;

	if (poll(groups, GROUPS, timeout_ms) <= 0)
		return 0;
	for (int i = 0; i < GROUPS; i++) {
		if (!(groups[i].revents & POLLIN))
			continue;
		CHECK_EQ(read(groups[i].fd, &m, sizeof(m)), (ssize_t)sizeof(m));
		*r = (struct fanotify_response){m.fd, FAN_ALLOW};
		*group = groups[i].fd;
		return m.pid;
	}
	return 0;
}

static void answer(const struct fanotify_response *r, int group, uint32_t how)
{
	const struct fanotify_response to = {r->fd, how};

	CHECK_EQ(write(group, &to, sizeof(to)), (ssize_t)sizeof(to));
	close(r->fd);
}

/* Of another process, which is held up nowhere; and the agent has seen its close. */
static void open_and_close(void)
{
	struct outsider o = outsider_open(&w, O_RDONLY);
	struct fanotify_response r;
	char said = 0;
	int group;

	while (!said) {
		if (asks(&r, &group, 10) == o.pid)
			answer(&r, group, FAN_ALLOW);
		said = outsider_said(&o, 0);
	}
	outsider_close(&o);
	outsider_end(&o);
	usleep(20000);
}

/* The client is told, when nobody may write the file any more or somebody is about to, and gives up what it has. */
static void give_up(struct played *c, const struct world_file *f, int timeout_ms)
{
	struct sfs_msg m;

	CHECK_EQ(played_revoke(c, f, timeout_ms, &m), SFS_DELEG_NONE);
	played_revoked(c, &m, true);
}

/*
 * One opens the file for writing, and succeeds or not, while the client has it. How many groups have held it up behind the agent, as the
 * client had been asked for the file by then.
 */
static int hold_up(struct played *c, const struct world_file *f, bool succeeds)
{
	struct fanotify_response r;
	struct outsider o;
	int behind = 0, group, status;
	bool asked = false;

	played_alone(c, f);
	groups_begin();
	o = outsider_open(&w, O_WRONLY | O_APPEND);
	for (int held = 0; held < GROUPS;) {
		const pid_t pid = asks(&r, &group, 10);

		if (pid == 0 && !asked && poll(&(struct pollfd){c->event, POLLIN, 0}, 1, 0) > 0) {
			give_up(c, f, 0);
			asked = true;
		}
		if (pid != o.pid)
			continue;
		held++;
		if (asked) {
			if (behind++ < LOOKS)
				open_and_close();
			CHECK_EQ(played_acquire(c, f, 0), SFS_DELEG_SHARED);
		}
		answer(&r, group, asked && !succeeds && held == GROUPS ? FAN_DENY : FAN_ALLOW);
	}
	groups_end();
	if (!asked)
		give_up(c, f, PATIENCE);
	if (!asked || succeeds) {
		CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
		outsider_close(&o);
	}
	/* Nobody closes what was not opened. */
	if (asked)
		give_up(c, f, PATIENCE);
	close(o.in);
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	CHECK_EQ(status == 0, !asked || succeeds);
	close(o.out);
	return behind;
}

int main(void)
{
	struct world_file f;
	struct played c;
	int behind = 0;

	outsider_world(&w, &a, &f, 100);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	for (int succeeds = 0; succeeds < 2; succeeds++)
		behind += hold_up(&c, &f, succeeds);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	if (behind == 0)
		printf("the kernel asks the agent last\n");
	return behind > 0 ? 0 : 77;
}
