/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a volume: one agent or one recovery at a time. Its content says who, for messages and for `splitfs status`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "format/layout.h"
#include "control/root.h"

/* `status` holds the lock for an instant when it asks who has it. */
#define TRIES	 20
#define PAUSE_NS 25000000l

static void parse(int fd, struct sfs_holder *h)
{
	char text[sizeof(h->agents_dir) + 64];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	int at = 0;

	memset(h, 0, sizeof(*h));
	if (n <= 0)
		return;
	text[n] = 0;
	text[strcspn(text, "\n")] = 0;
	if (sscanf(text, "%15s %d %15s %n", h->what, &h->pid, h->provider, &at) >= 3 && at > 0)
		snprintf(h->agents_dir, sizeof(h->agents_dir), "%s", text + at);
}

int sfs_root_lock_note(struct sfs_root *r, const char *what, const char *provider, const char *agents_dir)
{
	char text[PATH_MAX + 64];
	int n = snprintf(text, sizeof(text), "%s %d %s %s\n", what, (int)getpid(), provider ? provider : "-",
			 agents_dir ? agents_dir : "-");

	if (n < 0 || n >= (int)sizeof(text))
		return -ENAMETOOLONG;
	if (pwrite(r->lock, text, (size_t)n, 0) != n || ftruncate(r->lock, n) < 0)
		return errno ? -errno : -ENOSPC;
	return 0;
}

int sfs_root_lock(struct sfs_root *r, const char *what, struct sfs_why *why)
{
	const struct timespec pause = {0, PAUSE_NS};
	struct sfs_holder h;
	int fd, err;

	fd = openat(r->ctl, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sfs_fail(why, -errno, "open %s/" SFS_CONTROL_DIR "/lock: %s", r->path, strerror(errno));
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK) {
			err = sfs_fail(why, -errno, "lock %s/" SFS_CONTROL_DIR "/lock: %s", r->path, strerror(errno));
			close(fd);
			return err;
		}
		if (i == TRIES) {
			parse(fd, &h);
			close(fd);
			return sfs_fail(why, -EBUSY, "%s is in use by 'splitfs %s' with process id %d; end that first", r->path,
					h.what[0] ? h.what : "?", h.pid);
		}
		nanosleep(&pause, NULL);
	}
	r->lock = fd;
	err = sfs_root_own(r, fd);
	if (!err)
		err = sfs_root_lock_note(r, what, NULL, NULL);
	if (err) {
		sfs_fail(why, err, "write %s/" SFS_CONTROL_DIR "/lock: %s", r->path, strerror(-err));
		sfs_root_unlock(r);
	}
	return err;
}

void sfs_root_unlock(struct sfs_root *r)
{
	if (r->lock >= 0)
		close(r->lock);
	r->lock = -1;
}

int sfs_root_holder(const struct sfs_root *r, struct sfs_holder *h)
{
	int fd = openat(r->ctl, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC), held;

	memset(h, 0, sizeof(*h));
	if (fd < 0)
		return 0;
	held = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	if (held)
		parse(fd, h);
	close(fd);
	return held;
}
