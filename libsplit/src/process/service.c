/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service thread: answers the agent's revocations, and relinks what has been staged for visibility_ms so that processes
 * without the library see it. It is a bare thread of the kernel: no libc, no thread-local storage, all signals blocked, so that the program's
 * C library and its signal handling never notice it. It starts when the agent may have something to say (SFS_FEATURE_QUIET): with a second thread
 * each call of the kernel's on a descriptor counts references and locks the offset, 70 ns of a small write, and most programs never need it.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "files/leased.h"
#include "lease/ask.h"
#include "process/service.h"
#include "io/io.h"
#include "calls/calls.h"

#define STACK_BYTES    (64ul << 10)
#define START_AGAIN_NS 1000000000l
#define RETRY_NS       2000000l /* a file that was busy when it was to be given up */
#define STORES_AWAITED 50	/* times RETRY_NS, for a store in place */
#define RETIRE_BLOCKS  16384u	/* 64 MiB */
#define IDLE_MS	       2000	/* after that the pool gets spare staging files back */
#define SHOW_MS	       10	/* after that programs without the library see what is written to a file that they have open */

/*
 * The kernel stores to the file for this process without our being asked: through a mapping, or for a call that has begun, as a splice that waits
 * for its bytes. Nobody may have it to himself meanwhile: his snapshots would change.
 */
static bool kernel_stores(const struct sfs_inode *in)
{
	return in->vol->owners && (sfs_server_is_kernel(&in->server) || load_acquire(&in->changing) > 0);
}

/*
 * Are stores in place over, or have they been waited for long enough? Then the window goes under them, whose address space is lost. Lock held.
 */
static bool stores_end(struct sfs_inode *in)
{
	if (in->flights.changes & SFS_CHANGES_STORES && in->flights.awaited++ < STORES_AWAITED)
		return false;
	in->flights.awaited = 0;
	return true;
}

/*
 * Go down to the delegation that the agent wants. False: the file is busy, or what is staged can't be relinked now (no space); it
 * is tried again soon.
 */
static bool step_down(struct sfs_volume *vol, struct sfs_inode *in)
{
	int r = -EBUSY;

	/*
	 * Whoever is about to ask for the file has nothing staged, and its question makes the agent forget ours. Once it has
	 * asked, the answer may be on its way: then only the lock tells.
	 */
	if (!sfs_inode_lock_soon(in))
		return load_acquire(&in->grant.acquiring);
	if (stores_end(in))
		r = in->grant.revoke - 1u == SFS_DELEG_NONE && !sfs_kernel_calls_end(in)
			    ? -EBUSY
			    : sfs_step_down(in, in->grant.revoke - 1u);
	/* The agent keeps no hold of who goes by its table, unless the kernel goes on to store to the file for it. */
	if (r == 0 && in->grant.state == GRANT_KEPT && in->vol->owners && !kernel_stores(in))
		sfs_grant_set(&in->grant, GRANT_NONE);
	if (r == 0)
		sfs_inode_narrow(in);
	sfs_inode_unlock(in);
	/* Relinked, but its records still count: they must go before others may write. */
	if (r == -EAGAIN)
		sfs_checkpoint(vol, false);
	return r == 0;
}

static void answer(struct sfs_volume *vol, ino_t ino, uint32_t gen, unsigned to, uint64_t number)
{
	const struct sfs_msg m = {.type = SFS_MSG_REVOKED, .a = ino, .b = gen, .c = to, .d = number};

	sfs_agent_answer(vol, &m);
}

void sfs_service_answer(struct sfs_inode *in)
{
	/* And goes on looking at what the kernel has. */
	const unsigned keeps = kernel_stores(in) ? SFS_DELEG_SHARED : SFS_DELEG_NONE;
	const unsigned to = in->grant.revoke - 1u < keeps ? keeps : in->grant.revoke - 1u;

	for (uint32_t i = 0; i < in->grant.revokes; i++)
		answer(in->vol, in->ino, in->gen, to, i < SFS_REVOKES_MAX ? in->grant.revoke_numbers[i] : 0);
	in->grant.revokes = 0;
	in->grant.revoke = 0;
}

/* Snapshots of a file that others may change without our being asked: the agent after the one that granted it can't tell. */
static void save_unwatched(struct sfs_inode *in)
{
	if (!sfs_inode_lock_soon(in))
		return;
	if (in->grant.state != GRANT_WATCHED)
		sfs_pins_save_all(&in->pins);
	sfs_inode_unlock(in);
}

/* One try at what is asked of the inode; *arg: something is left to do. */
static int retry_one(struct sfs_inode *in, void *arg)
{
	if (unlikely(load_acquire(&in->pins.held) > 0 && in->grant.state != GRANT_WATCHED))
		save_unwatched(in);
	if (in->grant.revoke == 0)
		return 0;
	/* Not open: it goes, and the other process has the file to itself. The reference that is dropped next answers. */
	if (!(sfs_inode_pending(in) || in->pins.total > 0) && sfs_inode_evict(in)) {
		*(bool *)arg = true;
		return 0;
	}
	if (!step_down(in->vol, in)) {
		*(bool *)arg = true;
		return 0;
	}
	sfs_service_answer(in);
	return 0;
}

/*
 * Relink for those who do not have the library; what is busy now gets its turn with the next tick. Where records go on counting
 * until the journal has committed, that is done when the file has been left alone for a tick, or holds much staging space, or
 * has stores waiting that could go in place.
 */
static int publish_one(struct sfs_inode *in, void *arg)
{
	enum sfs_flush how;
	int r;

	(void)arg;
	if (!sfs_inode_pending(in) || !sfs_inode_lock_soon(in))
		return 0;
	how = !in->busy || in->counted.blocked || in->staging.region_taken > RETIRE_BLOCKS ? SFS_RETIRE : SFS_PUBLISH;
	in->busy = false;
	r = sfs_flush(in, how);
	sfs_inode_unlock(in);
	if (r == -EAGAIN)
		sfs_checkpoint(in->vol, false);
	return 0;
}

/* For a program without the library that has the file open. */
static int show_one(struct sfs_inode *in, void *arg)
{
	(void)arg;
	if (in->staging.count == 0 || !sfs_outside(in->vol, in->ino) || !sfs_inode_lock_soon(in))
		return 0;
	sfs_flush(in, SFS_PUBLISH); /* if it can't be now, the next timed turn tries again */
	sfs_inode_unlock(in);
	return 0;
}

/* Answer what the agent has asked. False: the agent is gone. */
static bool events(struct sfs_volume *vol, bool *pending)
{
	struct sfs_msg m;
	int r;

	while ((r = sfs_agent_event(vol, &m)) == 0) {
		const unsigned to = m.c == SFS_DELEG_NONE ? SFS_DELEG_NONE : SFS_DELEG_SHARED;
		struct sfs_inode *in;

		if (m.type == SFS_MSG_LOOKED)
			sfs_answered(vol, &m);
		if (m.type == SFS_MSG_TURN)
			sfs_turn_told(vol->dev, (ino_t)m.a);
		if (m.type != SFS_MSG_REVOKE)
			continue;
		in = sfs_inode_ref(vol->dev, (ino_t)m.a);
		/* It was moved here from another volume of the device: that one's agent has granted it. */
		if (in && in->vol != vol) {
			sfs_inode_put(in);
			in = NULL;
		}
		if (!in) {
			answer(vol, (ino_t)m.a, (uint32_t)m.b, to, m.d);
			continue;
		}
		/* Asked twice for different things: the lower one serves both. */
		in->grant.revoke = (uint8_t)(in->grant.revoke && in->grant.revoke < to + 1 ? in->grant.revoke : to + 1);
		if (in->grant.revokes < SFS_REVOKES_MAX)
			in->grant.revoke_numbers[in->grant.revokes] = m.d;
		in->grant.revokes++;
		retry_one(in, pending);
		sfs_inode_put(in);
	}
	return r == -EAGAIN;
}

/* Is something staged on a volume of which such programs have files open? */
static bool shows(const struct sfs_volume *vol)
{
	return load_acquire(&vol->agent.state) == VOL_READY && vol->dirty && sfs_says_outside(vol, SFS_OWNERS_ALL);
}

bool sfs_service_turn(bool timed)
{
	bool pending = false;
	uint32_t connection;

	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];

		if (load_acquire(&vol->agent.state) != VOL_READY)
			continue;
		connection = load_acquire(&vol->agent.connection);
		if (vol->agent.event_fd < 0 || !events(vol, &pending))
			sfs_agent_reconnect(vol, connection);
		sfs_inodes_each(vol, retry_one, &pending);
	}
	if (!timed)
		return pending;
	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];

		if (load_acquire(&vol->agent.state) != VOL_READY)
			continue;
		sfs_inodes_age(vol);
		if (!vol->dirty) {
			if (vol->pool.nchunks > 1 && ++vol->idle > IDLE_MS / sfs.visibility_ms)
				sfs_pool_idle(&vol->pool);
			continue;
		}
		vol->idle = 0;
		store_release(&vol->dirty, false);
		sfs_inodes_each(vol, publish_one, NULL);
		if (load_acquire(&vol->live) > 0)
			store_release(&vol->dirty, true);
	}
	return pending;
}

void sfs_service_show(void)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		if (shows(&sfs.volumes[i]))
			sfs_inodes_each(&sfs.volumes[i], show_one, NULL);
}

/* What wakes us before is no reason to do it now, nor to put it off. 0: it is not to be done. */
static void decide(int64_t *due, bool wanted, int64_t now, int64_t wait)
{
	if (!wanted)
		*due = 0;
	else if (*due == 0 || now + wait < *due)
		*due = now + wait;
}

static bool over(int64_t *due, int64_t now)
{
	if (*due == 0 || now < *due)
		return false;
	*due = 0;
	return true;
}

/* Until somebody wants something, or until `due` unless that is 0. */
static void sleep_until(struct pollfd *p, int n, int64_t now, int64_t due)
{
	const int64_t wait = due > now ? due - now : 0;
	const struct timespec left = {wait / 1000000000, wait % 1000000000};
	uint64_t clean;

	sys_call5(SYS_ppoll, (long)p, n, due ? (long)&left : 0, 0, 8);
	if (p[0].revents)
		sys_read(sfs.wake_fd, &clean, sizeof(clean));
}

static void serve(void)
{
	bool pending = false;
	int64_t due = 0, show = 0; /* when the next timed turn is, and when something is to be shown */

	for (;;) {
		struct pollfd p[SFS_VOLUMES_MAX + 1];
		int64_t now = sys_now_ns(), first;
		bool timed = pending, shown = false;
		int n = 1;

		p[0] = (struct pollfd){sfs.wake_fd, POLLIN, 0};
		for (int i = 0; i < sfs.nvolumes; i++) {
			struct sfs_volume *vol = &sfs.volumes[i];

			if (load_acquire(&vol->agent.state) != VOL_READY)
				continue;
			if (vol->agent.event_fd >= 0)
				p[n++] = (struct pollfd){vol->agent.event_fd, POLLIN, 0};
			else
				timed = true; /* the agent is away */
			timed = timed || vol->dirty || vol->pool.nchunks > 1 || load_acquire(&sfs_files.parked) > 0;
			shown = shown || shows(vol);
		}
		decide(&due, timed, now, pending ? RETRY_NS : sfs.visibility_ms * 1000000ll);
		decide(&show, shown, now, SHOW_MS * 1000000ll);
		first = show && (!due || show < due) ? show : due;
		sleep_until(p, n, now, first);
		now = sys_now_ns();
		if (over(&show, now))
			sfs_service_show();
		pending = sfs_service_turn(timed && over(&due, now));
	}
}

/*
 * `self` becomes the thread's thread pointer, which is all of thread-local storage it has: the locks tell threads apart by it
 * (base/bias.h).
 */
static long spawn(void *stack_top, void **self)
{
	const unsigned long flags =
		CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS;

	*self = self;
	return sys_clone_thread(flags, stack_top, self, serve);
}

/* sfs_files.lock held. */
static void start_locked(void)
{
	uint64_t all = ~0ull, old;
	void *stack;

	if (sfs.wake_fd < 0)
		sfs.wake_fd = sfs_event_fd();
	stack = sys_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (sys_is_err(stack))
		return;
	sys_sigmask(SIG_SETMASK, &all, &old);
	if (sfs.wake_fd >= 0 && spawn((char *)stack + STACK_BYTES, stack) > 0)
		__atomic_store_n(&sfs.service_state, 1, __ATOMIC_SEQ_CST);
	else
		sys_munmap(stack, STACK_BYTES);
	sys_sigmask(SIG_SETMASK, &old, NULL);
}

int sfs_service_start(void)
{
	static int64_t refused; /* when the kernel made no thread: it is asked again after a while, not for each call */
	int64_t now;
	int r;

	if (likely(load_acquire(&sfs.service_state)))
		return 0;
	now = sys_now_ns();
	sfs_mutex_lock(&sfs_files.lock);
	if (sfs.service_state == 0 && (!refused || now - refused >= START_AGAIN_NS)) {
		start_locked();
		refused = sfs.service_state ? 0 : now;
		/* A volume that has become ready meanwhile found nobody to wake: sfs_service_wake(). */
		sfs_service_wake(NULL);
	}
	r = sfs.service_state ? 0 : -EAGAIN;
	sfs_mutex_unlock(&sfs_files.lock);
	return r;
}

bool sfs_one_thread(void)
{
	struct stat st;
	long own;

	sfs_check_fork();				/* else the service thread is the parent's */
	own = load_acquire(&sfs.service_state) ? 2 : 1; /* one that starts meanwhile is one too many */
	/* A directory for each thread. */
	return sys_fstatat(AT_FDCWD, "/proc/self/task", &st, 0) == 0 && (long)st.st_nlink - 2 == own;
}

/* vol (or, with NULL, the agent's answer to a reconnect) wants attention. Called once per visibility_ms at most. */
void sfs_service_wake(struct sfs_volume *vol)
{
	const uint64_t one = 1;

	if (vol)
		store_release(&vol->dirty, true);
	/* What it is to see was stored before: either it is awake, and this wakes it, or it starts, and is woken then. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (load_acquire(&sfs.service_state))
		sys_write(sfs.wake_fd, &one, sizeof(one));
}
