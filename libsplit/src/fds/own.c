/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of the library itself. They stand above the numbers that the program may have (the soft limit of
 * RLIMIT_NOFILE), so that it can open as many files as without us, and out of reach of programs that close all
 * numbers they know of. A number above the limit can be had only while the limit is higher, for an instant; it stays
 * valid afterwards.
 *
 * Where the hard limit is not much higher, numbers are scarce: we take some that the program then lacks, high ones,
 * but not higher than SHARED_FROM (the kernel's table of descriptors reaches up to the highest number, and fork(2)
 * copies it, close_range(2) walks through it). A few are kept from the start, as copies of a descriptor that is good
 * for nothing: one is closed for the instant in which we need a number, and a descriptor of ours that is not needed
 * any more becomes one. Files have a share of the numbers, and who needs one more makes another file do without
 * (files/scarce.c).
 *
 * Where the program is refused a number, it gets one of ours, one for each call that is made again: a kept one, or
 * that of a file or of an empty staging file. What stays are the sockets, the log and the eventfd, and what must be
 * kept: one number, by which a connection to the agent can be made anew, and in strict one for each file that is open,
 * up to a handful, and for staging files (struct sfs_need).
 */
#include <errno.h>

#include "base/sys.h"
#include "fds/own.h"

#define SHARED_FROM 1536  /* not of those that select(2) can take, and few enough for a table of 2048 */
#define PLENTY	    65536 /* nobody uses up so many: none are kept */
#define KEPT_MAX    64
#define ABOVE_MIN   256 /* with fewer numbers above the soft limit we do without them */
#define FILES_MIN   8
#define SPARE_MIN   1 /* an agent that is back sends the log and the event socket over a new one, when two are closed */
#define FILES_PART  8 /* of scarce numbers, one in so many is for files until the program wants it */

/* Under sfs_fdt.numbers. */
static struct {
	int most;     /* as many as are to be ours, in use or kept, until the program is refused one */
	int want;     /* as many as are to be ours now */
	int used;     /* descriptors of ours */
	int files;    /* those of files among them; atomic */
	int share;    /* so many of them there may be; 0: nobody has asked; atomic */
	bool refused; /* the program has used up all others; atomic */
	int limit;    /* the program's numbers, where they are scarce, else 0 */
	int mould;    /* what the kept ones are copies of, + 1 */
	int kept;
	int fd[KEPT_MAX];
} ours;

static int prlimit_nofile(const struct rlimit *set, struct rlimit *old)
{
	return (int)sys_call4(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)set, (long)old);
}

void sfs_numbers_keep(int n)
{
	ours.most = n < KEPT_MAX ? n : KEPT_MAX;
	if (!ours.refused)
		ours.want = ours.most;
}

/* ---- numbers that are kept ---- */

static void make_private(int fd)
{
	if (fd >= sfs_fds_len)
		return;
	sfs_fds_private(fd);
	ours.used++;
}

/* The same descriptor under one of the program's numbers, a high one. */
static int copy_of(int fd, int limit)
{
	const int from = limit - limit / 4 < SHARED_FROM ? limit - limit / 4 : SHARED_FROM;
	const int high = sys_fcntl(fd, F_DUPFD_CLOEXEC, from);

	return high >= 0 ? high : sys_fcntl(fd, F_DUPFD_CLOEXEC, from < limit / 2 ? from : limit / 2);
}

static void keep(int fd)
{
	sfs_fds_private(fd);
	ours.fd[ours.kept++] = fd;
}

/* As many as are wanted, or as there are; at least `least`. */
static void keep_more(int least)
{
	int fd;

	if (!ours.limit || ours.limit > PLENTY || sfs_fds_len == 0)
		return;
	if (least == 0 && ours.used + ours.kept >= ours.want)
		return; /* a process that is no client of the agent's keeps none */
	if (!ours.mould) {
		fd = (int)sys_call2(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			return;
		ours.mould = copy_of(fd, ours.limit) + 1;
		if (ours.mould > 0)
			sys_close(fd);
		else
			ours.mould = fd + 1;
		make_private(ours.mould - 1);
	}
	while (ours.kept < KEPT_MAX && (ours.kept < least || ours.used + ours.kept < ours.want)) {
		fd = copy_of(ours.mould - 1, ours.limit);
		if (fd < 0)
			return;
		keep(fd);
	}
}

/* Kept for the connection: neither for a file nor for a staging file. */
static int spare(void)
{
	return ours.refused ? SPARE_MIN : 0;
}

/* The next descriptors that are made find numbers; so many of the kept ones stay. */
static void make_room(int descriptors, int stay)
{
	for (; descriptors > 0 && ours.kept > stay; descriptors--) {
		const int fd = ours.fd[--ours.kept];

		store_release(&sfs_fds[fd], (struct sfs_ofd *)NULL);
		sys_close(fd);
	}
}

bool sfs_number_kept(void)
{
	bool scarce, have;

	for (;;) {
		sfs_mutex_lock(&sfs_fdt.numbers);
		scarce = ours.limit > 0 && ours.limit <= PLENTY;
		if (scarce)
			keep_more(1 + spare());
		have = !scarce || ours.kept > spare();
		sfs_mutex_unlock(&sfs_fdt.numbers);
		if (have || !sfs_numbers_less(true))
			return have;
	}
}

static int at_least(int n, int least)
{
	return n > least ? n : least;
}

/* So many must be kept. */
static int must_keep(const struct sfs_need *need, bool file)
{
	const int files = need->files + (file && need->strict), room = FILES_MIN - ours.files;

	return (files < room ? files : at_least(room, 0)) + need->staging + SPARE_MIN;
}

bool sfs_numbers_back(long fd, bool file)
{
	bool gave = false, others = false;
	struct sfs_need need;
	int keeps;

	if (likely(fd != -EMFILE) || !ours.limit)
		return false;
	need = sfs_numbers_needed(ours.limit);
	sfs_mutex_lock(&sfs_fdt.numbers);
	if (ours.limit) {
		__atomic_store_n(&ours.refused, true, __ATOMIC_RELAXED);
		__atomic_store_n(&ours.share, FILES_MIN, __ATOMIC_RELAXED);
		keeps = must_keep(&need, file);
		ours.want = ours.used + keeps < ours.most ? ours.used + keeps : ours.most;
		gave = ours.kept > keeps;
		if (gave)
			make_room(1, keeps);
		others = !need.strict || ours.files > FILES_MIN || ours.used > ours.most;
	}
	sfs_mutex_unlock(&sfs_fdt.numbers);
	return gave || (others && (sfs_numbers_less(true) || (!need.strict && sfs_numbers_unstaged())));
}

void sfs_numbers_closed(void)
{
	if (likely(!__atomic_load_n(&ours.refused, __ATOMIC_RELAXED)))
		return;
	sfs_mutex_lock(&sfs_fdt.numbers);
	keep_more(0);
	sfs_mutex_unlock(&sfs_fdt.numbers);
}

bool sfs_number_give_up(int newfd)
{
	bool found = false;

	sfs_mutex_lock(&sfs_fdt.numbers);
	for (int i = 0; i < ours.kept && !found; i++)
		if (ours.fd[i] == newfd) {
			ours.fd[i] = ours.fd[--ours.kept];
			store_release(&sfs_fds[newfd], (struct sfs_ofd *)NULL);
			found = true;
		}
	sfs_mutex_unlock(&sfs_fdt.numbers);
	return found;
}

/* ---- the limit ---- */

static int at_most(rlim_t n)
{
	return n < (rlim_t)sfs_fds_len ? (int)n : sfs_fds_len;
}

/* Whose numbers ours are. */
static void shares(int soft, int hard)
{
	const bool scarce = hard - soft < ABOVE_MIN;
	const int share = !scarce ? (hard - soft) / 4 * 3 : ours.refused ? FILES_MIN : soft / FILES_PART;

	ours.limit = scarce ? soft : 0;
	__atomic_store_n(&ours.share, share > FILES_MIN ? share : FILES_MIN, __ATOMIC_RELAXED);
}

static void lift(struct sfs_limit *l, int descriptors, bool file)
{
	sfs_mutex_lock(&sfs_fdt.numbers);
	l->lifted = false;
	if (prlimit_nofile(NULL, &l->was) < 0) {
		l->was.rlim_cur = 0;
		return;
	}
	l->now = l->was;
	l->now.rlim_cur = at_most(l->was.rlim_max);
	shares(at_most(l->was.rlim_cur), (int)l->now.rlim_cur);
	if (ours.limit) {
		make_room(descriptors, file ? spare() : 0);
		return;
	}
	/* For a child of a fork in another thread. */
	sfs_fdt.soft_limit = l->was.rlim_cur;
	l->lifted = prlimit_nofile(&l->now, NULL) == 0;
}

void sfs_limit_lift(struct sfs_limit *l, int descriptors)
{
	lift(l, descriptors, false);
}

void sfs_limit_set_back(const struct sfs_limit *l)
{
	struct rlimit seen;

	/* Another thread may have set it meanwhile: then it is as that wants it. */
	if (l->lifted && prlimit_nofile(&l->was, &seen) == 0 &&
	    (seen.rlim_cur != l->now.rlim_cur || seen.rlim_max != l->now.rlim_max))
		prlimit_nofile(&seen, NULL);
	sfs_fdt.soft_limit = 0;
	keep_more(0);
	sfs_mutex_unlock(&sfs_fdt.numbers);
}

int sfs_limit_move(const struct sfs_limit *l, int fd)
{
	int high = -1;

	if (fd < 0)
		return fd;
	if (l->lifted)
		high = sys_fcntl(fd, F_DUPFD_CLOEXEC, (long)l->was.rlim_cur);
	if (high < 0)
		high = copy_of(fd, at_most(l->was.rlim_cur));
	if (high >= 0)
		sys_close(fd);
	else
		high = fd;
	make_private(high);
	return high;
}

int sfs_event_fd(void)
{
	struct sfs_limit l;
	int fd;

	sfs_limit_lift(&l, 1);
	/* What the kept ones are copies of is nobody's yet. */
	fd = ours.mould ? ours.mould - 1 : sfs_limit_move(&l, (int)sys_call2(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK));
	if (fd >= 0)
		ours.mould = fd + 1;
	sfs_limit_set_back(&l);
	return fd;
}

void sfs_event_forget(int fd)
{
	bool renewed = false;
	struct sfs_limit l;
	int fresh;

	if (ours.limit && fd == ours.mould - 1) {
		sfs_limit_lift(&l, 1);
		fresh = (int)sys_call2(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
		renewed = fresh >= 0 && sys_call3(SYS_dup3, fresh, fd, O_CLOEXEC) >= 0;
		if (fresh >= 0)
			sys_close(fresh);
		sfs_limit_set_back(&l);
	}
	if (!renewed)
		sfs_private_close(fd);
}

void sfs_private_close(int fd)
{
	bool kept = false;

	sfs_mutex_lock(&sfs_fdt.numbers);
	if (sfs_fd_is_private(fd)) {
		ours.used--;
		if (fd == ours.mould - 1)
			ours.mould = 0;
		if (ours.mould && ours.limit && ours.kept < KEPT_MAX && ours.used + ours.kept < ours.want)
			kept = sys_call3(SYS_dup3, ours.mould - 1, fd, O_CLOEXEC) >= 0;
		if (kept)
			keep(fd);
		else
			store_release(&sfs_fds[fd], (struct sfs_ofd *)NULL);
	}
	if (!kept)
		sys_close(fd);
	sfs_mutex_unlock(&sfs_fdt.numbers);
}

int sfs_close_all_but_ours(unsigned first, unsigned last)
{
	int r = 0;

	sfs_mutex_lock(&sfs_fdt.numbers);
	for (unsigned fd = (unsigned)sfs_fdt.private_min; (int)fd <= sfs_fdt.private_max && fd <= last; fd++) {
		if (fd < first || !sfs_fd_is_private((int)fd))
			continue;
		if (fd > first)
			sys_call3(SYS_close_range, first, fd - 1, 0);
		first = fd + 1;
	}
	if (first <= last)
		r = (int)sys_call3(SYS_close_range, first, last, 0);
	sfs_mutex_unlock(&sfs_fdt.numbers);
	return r;
}

void sfs_limit_child(void)
{
	struct rlimit rl;

	if (sfs_fdt.soft_limit && prlimit_nofile(NULL, &rl) == 0) {
		rl.rlim_cur = sfs_fdt.soft_limit;
		prlimit_nofile(&rl, NULL);
	}
	sfs_fdt.soft_limit = 0;
}

/* ---- files ---- */

int sfs_file_open(const char *path, int flags, bool beyond)
{
	const int share = __atomic_load_n(&ours.share, __ATOMIC_RELAXED);
	struct sfs_limit l;
	int fd;

	if (!beyond && share && __atomic_load_n(&ours.files, __ATOMIC_RELAXED) >= share)
		return -EMFILE;
	lift(&l, 1, true);
	fd = sfs_limit_move(&l, sys_openat(AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY, 0));
	sfs_limit_set_back(&l);
	if (fd >= 0)
		__atomic_add_fetch(&ours.files, 1, __ATOMIC_RELAXED);
	return fd;
}

void sfs_file_close(int fd)
{
	__atomic_sub_fetch(&ours.files, 1, __ATOMIC_RELAXED);
	sfs_private_close(fd);
}
