/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that had a file open before a client was granted it: the kernel has not asked about them, and the client has to give
 * the file up all the same, and does not have it to itself again before they have closed it.
 */
#include "outsider.h"

#include <stdbool.h>

#include "control/store.h"

#define MANY 100 /* more files than one look is for */

static struct world w;
static struct played_agent a;
static struct world_file f;
static struct played c;

static struct outsider opened(int flags)
{
	const struct outsider o = outsider_open(&w, flags);

	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	return o;
}

static void granted(void)
{
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
}

static void given_back(void)
{
	played_notify(&c, SFS_MSG_RELEASE, f.ino, f.gen);
}

/* It is found, and the client has the file to itself when it has closed it. */
static void writes_still(struct outsider *o)
{
	played_give_up(&c, &f);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	outsider_close(o);
	played_give_up(&c, &f);
	granted();
	outsider_end(o);
	given_back();
}

static void writes(void)
{
	struct outsider o = opened(O_WRONLY | O_APPEND);

	granted();
	writes_still(&o);
}

/* It keeps nobody from staging: what it lacks is brought in, and from then on soon (format/owners.h). */
static void reads(void)
{
	struct outsider o = opened(O_RDONLY);

	granted();
	played_give_up(&c, &f);
	granted();
	outsider_close(&o);
	outsider_end(&o);
	given_back();
}

/* While two clients have the file, and none of them may stage, the kernel is not asked. */
static void while_shared(void)
{
	struct played other;
	struct outsider o;
	struct sfs_msg m;

	CHECK_EQ(played_hello(&other, &a, SFS_POSIX, 0, f.fd), 0);
	granted();
	played_ask(&other, &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(&c, &m, true);
	CHECK_EQ(played_answer(&other, PATIENCE), SFS_DELEG_SHARED);
	o = opened(O_WRONLY);
	played_close(&other);
	EVENTUALLY(played_acquire(&c, &f, 0) == SFS_DELEG_EXCLUSIVE);
	writes_still(&o);
}

/* A process has them all open. */
static void many(void)
{
	struct world_file files[MANY];
	struct outsider o;
	struct sfs_msg m;
	char name[32], ch;

	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many%d", i);
		files[i] = world_file(&w, name, 'm', 10);
	}
	o = outsider_fork();
	if (o.pid == 0) {
		for (int i = 0; i < MANY; i++) {
			snprintf(name, sizeof(name), "many%d", i);
			if (chdir(w.dir) < 0 || open(name, O_WRONLY) < 0)
				_exit(1);
		}
		_exit(write(1, "o", 1) == 1 && read(0, &ch, 1) == 0 ? 0 : 1);
	}
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(played_acquire(&c, &files[i], 0), SFS_DELEG_EXCLUSIVE);
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(played_recv(c.event, &m, NULL, 0, PATIENCE), 1);
		CHECK_EQ(m.type, SFS_MSG_REVOKE);
		CHECK_EQ(m.c, SFS_DELEG_NONE);
		played_revoked(&c, &m, true);
	}
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(played_acquire(&c, &files[i], 0), SFS_DELEG_SHARED);
		played_notify(&c, SFS_MSG_RELEASE, files[i].ino, files[i].gen);
		close(files[i].fd);
	}
	outsider_end(&o);
}

/* Nobody has it: it stays the client's. */
static void nobody(void)
{
	struct sfs_msg m;

	granted();
	CHECK_EQ(played_revoke(&c, &f, 500, &m), -1);
	given_back();
}

/* A file with this number on another file system is another one. */
static void number_alone(void)
{
	const struct sfs_tables tables = {.all = true};
	uint32_t few = 3;
	struct sfs_sought sought[2] = {{.ino = f.ino + 1000000}, {.ino = f.ino}};

	CHECK_EQ(sfs_process_opened(getpid(), w.root.dev, f.ino, &tables), SFS_OPENED_WRITE);
	CHECK_EQ(sfs_process_opened(getpid(), w.root.dev + 1, f.ino, &tables), SFS_OPENED_NOT);
	CHECK(sfs_process_opened_any(getpid(), w.root.dev, sought, 2, NULL));
	CHECK_EQ(sought[0].has, SFS_OPENED_NOT);
	CHECK_EQ(sought[1].has, SFS_OPENED_WRITE);
	CHECK(!sfs_process_opened_any(getpid(), w.root.dev + 1, sought, 2, NULL));
	/* What there is no time to look at may have them. */
	CHECK(sfs_process_opened_any(getpid(), w.root.dev + 1, sought, 2, &few));
	CHECK_EQ(few, 0);
}

int main(void)
{
	outsider_world(&w, &a, &f, 100);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	number_alone();
	nobody();
	writes();
	reads();
	while_shared();
	many();
	played_close(&c);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
