/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the process: start, fork, exec, exit. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/sys.h"
#include "fds/own.h"
#include "files/kernel_offset.h"
#include "calls/calls.h"
#include "io/io.h"
#include "base/deferred.h"
#include "base/fault.h"
#include "base/protect.h"
#include "base/text.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#define VISIBILITY_MS 100
#define AGENT_WAIT_MS 2000

struct sfs_state sfs;
struct sfs_files sfs_files;
uint64_t sfs_ops[SFS_OPS + SFS_OP_PROBES];

static __attribute__((cold)) const char *env(char *const *envp, const char *name)
{
	const size_t n = strlen(name);

	for (; envp && *envp; envp++)
		if (memcmp(*envp, name, n) == 0 && (*envp)[n] == '=')
			return *envp + n + 1;
	return NULL;
}

static __attribute__((cold)) bool set_to(char *const *envp, const char *name, const char *word)
{
	const char *value = env(envp, name);

	return value && memcmp(value, word, strlen(word) + 1) == 0;
}

/* Milliseconds, cut off at a day; `otherwise` where there is no number. */
static __attribute__((cold)) uint32_t number(const char *s, uint32_t otherwise)
{
	uint32_t v = 0;

	if (!s || *s < '0' || *s > '9')
		return otherwise;
	for (; *s >= '0' && *s <= '9' && v < 86400000 / 10; s++)
		v = v * 10 + (uint32_t)(*s - '0');
	return v;
}

bool sfs_active(void)
{
	return sfs.nvolumes > 0;
}

bool sfs_store_again(uintptr_t addr)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs_pool_awaits_space(&sfs.volumes[i].pool, addr))
			return true;
	return false;
}

void sfs_handler_installed(void)
{
	struct sfs_mutex *const global[] = {&sfs_files.lock, &sfs_fdt.numbers, &sfs_pin_table.lock, &sfs_buffer_table.lock};

	if (!sfs_handlers_seen())
		return;
	/* Whoever is inside a lock now may be interrupted by the new handler: wait until it is out. Later ones block signals. */
	for (size_t i = 0; i < sizeof(global) / sizeof(global[0]); i++) {
		sfs_mutex_lock(global[i]);
		sfs_mutex_unlock(global[i]);
	}
	sfs_fds_await();
	for (int i = 0; i < sfs.nvolumes; i++) {
		sfs_mutex_lock(&sfs.volumes[i].agent.conn);
		sfs_mutex_unlock(&sfs.volumes[i].agent.conn);
		sfs_mutex_lock(&sfs.volumes[i].pool.lock);
		sfs_mutex_unlock(&sfs.volumes[i].pool.lock);
	}
}

void sfs_limit_coming(uint64_t bytes)
{
	if (bytes >= sfs.fsize_limit)
		return;
	sfs.fsize_limit = bytes; /* first: nothing more is staged behind it */
	sfs_all_true();
}

void sfs_limits_changed(void)
{
	struct rlimit rl;

	sfs.fsize_limit = ~0ull;
	if (sys_call4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&rl) == 0 && rl.rlim_cur != RLIM_INFINITY)
		sfs.fsize_limit = rl.rlim_cur;
	sfs_all_true(); /* no append goes on without looking */
}

/* To see what staging is worth. sync and strict keep their promise by it, so they go on with it and say so. */
static __attribute__((cold)) void staging_off(void)
{
	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];
		char text[SFS_PATH_MAX + 128];
		size_t n = 0;

		vol->unstaged = vol->mode == SFS_POSIX;
		if (vol->unstaged)
			continue;
		sfs_text_add(text, &n, sizeof(text), "libsplit: SPLITFS_STAGING=off is for posix: writes to ");
		sfs_text_add(text, &n, sizeof(text), vol->dir);
		sfs_text_add(text, &n, sizeof(text), vol->mode == SFS_SYNC ? " (sync)" : " (strict)");
		sfs_text_add(text, &n, sizeof(text), " are staged as without it\n");
		sys_write(2, text, n);
	}
}

/* The program's own stores are another matter than the library's work: without a key it serves all the same. */
static __attribute__((cold)) enum sfs_protection protection(bool asked)
{
	if (!asked)
		return SFS_PROTECTION_OFF;
	return sfs_protect_start() ? SFS_PROTECTION_ON : SFS_PROTECTION_CANNOT;
}

bool sfs_init(char *const *envp)
{
	const char *config = env(envp, "SPLITFS_CONFIG"), *ms = env(envp, "SPLITFS_VISIBILITY_MS");
	void *p;

	if (!config || !*config)
		return false;
	if (sfs.configured)
		return sfs_active();
	sfs.configured = true;
	sfs.wake_fd = sfs_fdt.fd_max = sfs_fdt.known_max = sfs_fdt.private_max = -1;
	sfs_fdt.private_min = INT_MAX;
	sfs.visibility_ms = number(ms, VISIBILITY_MS);
	if (sfs.visibility_ms == 0)
		sfs.visibility_ms = 1;
	sfs.agent_wait_ms = number(env(envp, "SPLITFS_AGENT_WAIT_MS"), AGENT_WAIT_MS);
	sfs.protection = protection(set_to(envp, "SPLITFS_PROTECT", "on"));
	sfs.grant_first = set_to(envp, "SPLITFS_GRANT", "first");
	sfs.fsync_shows = set_to(envp, "SPLITFS_FSYNC", "visible");
	sfs_limits_changed();
	sfs_bias_enable(); /* without it locks are slower, nothing else */
	if (sfs_fds_make() < 0)
		return false;
	p = sys_mmap(NULL, SFS_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!sys_is_err(p) && sys_madvise(p, SFS_BLOCK, MADV_WIPEONFORK) == 0) {
		sfs.alive = p;
		*sfs.alive = sys_getpid();
	}
	sfs_volumes_parse(config);
	if (set_to(envp, "SPLITFS_STAGING", "off"))
		staging_off();
	return sfs_active();
}

/* Every description from now on has its offset in the kernel: another process is about to share it. */
static void share_offsets(void)
{
	const uint64_t signals = sfs_signals_block(); /* a handler may use these locks */

	for (int fd = 0; fd <= load_acquire(&sfs_fdt.fd_max); fd++) {
		struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd <= SFS_PRIVATE)
			continue;
		sfs_mutex_lock(&ofd->lock);
		sfs_offset_lazy(ofd, false);
		if (!ofd->kernel_off) {
			sys_lseek(fd, ofd->off, SEEK_SET);
			ofd->kernel_off = true;
		}
		sfs_mutex_unlock(&ofd->lock);
	}
	sfs_signals_restore(signals);
	sfs_fds_shared();
}

void sfs_exec_prepare(void)
{
	if (!sfs_active())
		return;
	sfs.parent = true;
	sfs_all_true();
	sfs_inodes_unpark();
	share_offsets();
}

/* No lock is kept: the program's own atfork handlers run between here and the fork, and may write. */
void sfs_fork_prepare(void)
{
	sfs_exec_prepare();
	if (sfs_active() && sfs_pins_any())
		sfs_snapshots_save();
}

void sfs_fork_parent(void)
{
}

/*
 * A child of clone(CLONE_FILES) shares its parent's table of descriptors: what we close here would be closed there. It gets one of its own.
 * Where unshare(2) is forbidden, as in many containers, close_range(2) of no descriptor does the same.
 */
static void own_descriptors(void)
{
	const long none = ~0u, unshare = 2; /* CLOSE_RANGE_UNSHARE */

	if (sys_call1(SYS_unshare, CLONE_FILES) < 0)
		sys_call3(SYS_close_range, none, none, unshare);
}

/*
 * In the child: nothing of ours has a file open that is not open here. Another thread of the parent may just have been taking an inode down, also
 * out of the hash already, and is not here to end that; this process would be in the way of leases on the file.
 */
static void close_unopened(void)
{
	for (struct sfs_slab *s = sfs_files.slabs; s; s = s->next) {
		sfs_slab_each(in, s) {
			if (in->ino == 0 || in->opens > 0)
				continue;
			sfs_inode_close_own(in);
			sfs_park_leave(&in->park);
		}
	}
	sfs_files.parked = 0;
}

/*
 * The child has copies of everything but the maps of log and staging files. Its files become unknown: the next call connects,
 * asks for a delegation (which makes the parent relink) and starts over.
 */
void sfs_fork_child(void)
{
	if (!sfs_active() || (sfs.alive && *sfs.alive == sys_getpid()))
		return;
	if (sfs.alive)
		*sfs.alive = sys_getpid();
	own_descriptors();
	memset(&sfs_files.lock, 0, sizeof(sfs_files.lock));
	sfs_files.asking = 0;
	memset(&sfs_fdt.numbers, 0, sizeof(sfs_fdt.numbers));
	sfs_limit_child();
	sfs.forks++;
	sfs.parent = false;
	memset(sfs_ops, 0, sizeof(sfs_ops));
	sfs_locks_forget();
	sfs_pins_forget_locks();
	sfs_buffers_forget();
	sfs_faults_forget();
	sfs_deferred_forget();
	for (struct sfs_slab *s = sfs_files.slabs; s; s = s->next)
		sfs_slab_each(in, s)
			memset(&in->lock, 0, sizeof(in->lock));
	for (int i = 0; i < SFS_HASH; i++) {
		for (struct sfs_inode *in = sfs_files.hash[i]; in; in = in->next) {
			sfs_flights_forget(in);
			sfs_pins_inherit(&in->pins);
			sfs_staging_forget(&in->staging);
			in->counted = (struct sfs_counted){0};
			in->touched = in->busy = false;
			in->kdirty = true;
			sfs_grow_forget(in); /* it is in mappings that the child does not have */
			in->grant.revoke = 0;
			in->grant.revokes = 0;
			sfs_log_drop_slots(in);
			in->grant.acquiring = in->grant.asking = false;
			in->grant.looked = 0;
			sfs_grant_set(&in->grant, GRANT_NONE);
			sfs_life_again(&in->life);
			in->awaited = 0;
		}
	}
	close_unopened();
	sfs_fds_shared();
	sfs_fds_forget();
	for (int fd = 0; fd <= sfs_fdt.fd_max; fd++) {
		if (load_acquire(&sfs_fds[fd]) > SFS_PRIVATE) {
			sfs_fds[fd]->lock = (struct sfs_mutex){.brief = true};
			sfs_fds[fd]->kernel_off = true;
			sfs_fds[fd]->lazy = 0;
		}
	}
	if (sfs.wake_fd >= 0)
		sfs_event_forget(sfs.wake_fd);
	sfs.wake_fd = -1;
	sfs.service_state = 0;
	for (int i = 0; i < sfs.nvolumes; i++)
		sfs_volume_forget(&sfs.volumes[i]);
}

/* Everything is relinked: where records count until the journal has committed that, one commit for all of them. */
static void retire_all(void)
{
	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];

		/* What is busy now, in another thread or below a signal handler, is left to its flush or to the agent. */
		if (vol->agent.state == VOL_READY && vol->dax && load_acquire(&vol->live) > 0)
			sfs_checkpoint(vol, false);
	}
}

void sfs_stop_staging(void)
{
	if (!sfs_active())
		return;
	sfs.no_staging = true;
	sfs_exec_prepare();
	sfs_snapshots_save();
	retire_all();
}

void sfs_exit(void)
{
	if (!sfs_active())
		return;
	sfs.no_staging = true; /* what atexit handlers still write must not wait for the agent to find it */
	sfs_all_true();
	retire_all();
}
