/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the pool is filled when nobody waits for it. Zeroing staging files takes processor time and memory bandwidth from the
 * applications that they are for, so all agents of a node together get a share of one processor: one of them fills at a time,
 * and after each staging file it rests. Whose turn it is says the lock of a file that no application can open: who held it
 * would keep all pools at a quarter.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "agent/internal.h"

#define NS_PER_MS 1000000ull
/* One staging file never keeps the pool waiting for longer: a machine that was asleep, a budget of 1 % and a slow device. */
#define REST_MAX  (10000 * NS_PER_MS)
#define TURN_POLL (100 * NS_PER_MS) /* while another agent fills */
/* A pool that is used as fast as it is filled is never full: after so long the turn is another agent's, if one is waiting. */
#define TURN_MAX (2000 * NS_PER_MS)

int fill_start(struct fill *f, const char *lock, unsigned percent, struct sfs_why *why)
{
	*f = (struct fill){.lock_fd = -1, .percent = percent ? percent : SFS_DEFAULT_FILL_PERCENT};
	if (!lock)
		return 0;
	f->lock_fd = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return f->lock_fd < 0 ? sfs_fail(why, -errno, "--fill-lock %s: %s", lock, strerror(errno)) : 0;
}

void fill_stop(struct fill *f)
{
	drop_fd(&f->lock_fd);
}

uint64_t fill_wait(struct fill *f, uint64_t now)
{
	if (now < f->rest_until)
		return f->rest_until;
	if (f->turn && f->lock_fd >= 0 && now >= f->turn_until) {
		fill_rest(f);
		f->rest_until = now + 2 * TURN_POLL; /* whoever waits looks again in this time */
		return f->rest_until;
	}
	if (!f->turn && f->lock_fd >= 0 && flock(f->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return now + TURN_POLL;
	if (!f->turn)
		f->turn_until = now + TURN_MAX;
	f->turn = true;
	return 0;
}

void fill_spent(struct fill *f, uint64_t now, uint64_t cpu)
{
	const uint64_t rest = cpu / f->percent * (100 - f->percent), until = now + (rest < REST_MAX ? rest : REST_MAX);

	/* What could not wait does not end the rest that lets another agent have its turn. */
	if (until > f->rest_until)
		f->rest_until = until;
}

void fill_rest(struct fill *f)
{
	if (f->turn && f->lock_fd >= 0)
		flock(f->lock_fd, LOCK_UN);
	f->turn = false;
}
