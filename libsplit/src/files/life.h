/* SPDX-License-Identifier: Apache-2.0 */
/* The lives of an inode, as this process has it: what is known of the file, and whether it stays after the last close. */
#ifndef SFS_LIFE_H
#define SFS_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/state.h"

/*
 * Under the inode's lock; looked at without it for a guess.
 *
 *   LIFE_NEW    the next call that is to be served asks for what it needs
 *   LIFE_READY  descriptor, generation and sizes are known
 *   LIFE_LOST   staged bytes were given up: calls fail until the file is closed
 */
enum sfs_life { LIFE_NEW, LIFE_READY, LIFE_LOST };

static const uint8_t sfs_life_next[] = {
	[LIFE_NEW] = SFS_TO(LIFE_READY) | SFS_TO(LIFE_LOST),
	[LIFE_READY] = SFS_TO(LIFE_NEW) | SFS_TO(LIFE_LOST),
	[LIFE_LOST] = SFS_TO(LIFE_NEW),
};

static inline void sfs_life_set(enum sfs_life *life, enum sfs_life to)
{
	if (*life != to)
		sfs_check_next(sfs_life_next, *life, to);
	__atomic_store_n(life, to, __ATOMIC_RELAXED);
}

/* What was known of it is to be asked for again. */
static inline void sfs_life_again(enum sfs_life *life)
{
	if (*life == LIFE_READY)
		sfs_life_set(life, LIFE_NEW);
}

/*
 * Who serves the file's bytes. Under the inode's lock, but for steps of who opens the file at this moment; looked at
 * without it for a guess.
 *
 *   SERVER_LIBRARY       we: it may be staged and mapped
 *   SERVER_LEASE         the kernel, while the program has a lease on the file (files/leased.h)
 *   SERVER_KERNEL        the kernel, as long as the file is open here: mapped, locked before we had a descriptor, not
 *                        ours to open
 *   SERVER_KERNEL_LEASE  so, and the program has a lease besides
 */
enum sfs_server { SERVER_LIBRARY, SERVER_LEASE, SERVER_KERNEL, SERVER_KERNEL_LEASE, SFS_SERVERS };

/* To SERVER_LIBRARY from everywhere: with the inode's next life. */
static const uint8_t sfs_server_next[SFS_SERVERS] = {
	[SERVER_LIBRARY] = SFS_TO(SERVER_LEASE) | SFS_TO(SERVER_KERNEL),
	[SERVER_LEASE] = SFS_TO(SERVER_LIBRARY) | SFS_TO(SERVER_KERNEL_LEASE),
	[SERVER_KERNEL] = SFS_TO(SERVER_LIBRARY) | SFS_TO(SERVER_KERNEL_LEASE),
	[SERVER_KERNEL_LEASE] = SFS_TO(SERVER_LIBRARY) | SFS_TO(SERVER_KERNEL),
};

static inline void sfs_server_step(enum sfs_server *server, const enum sfs_server to[SFS_SERVERS])
{
	enum sfs_server from = __atomic_load_n(server, __ATOMIC_RELAXED);

	do {
		if (to[from] == from)
			return;
		sfs_check_next(sfs_server_next, from, to[from]);
	} while (!__atomic_compare_exchange_n(server, &from, to[from], false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* The kernel serves it from now on. */
static inline void sfs_server_kernel(enum sfs_server *server)
{
	static const enum sfs_server to[] = {SERVER_KERNEL, SERVER_KERNEL_LEASE, SERVER_KERNEL, SERVER_KERNEL_LEASE};

	sfs_server_step(server, to);
}

/* The program has a lease on it, or is about to ask for one. */
static inline void sfs_server_lease(enum sfs_server *server)
{
	static const enum sfs_server to[] = {SERVER_LEASE, SERVER_LEASE, SERVER_KERNEL_LEASE, SERVER_KERNEL_LEASE};

	sfs_server_step(server, to);
}

/* It has none any more. */
static inline void sfs_server_unlease(enum sfs_server *server)
{
	static const enum sfs_server to[] = {SERVER_LIBRARY, SERVER_LIBRARY, SERVER_KERNEL, SERVER_KERNEL};

	sfs_server_step(server, to);
}

/* It is another file's inode by now. */
static inline void sfs_server_again(enum sfs_server *server)
{
	static const enum sfs_server to[] = {SERVER_LIBRARY, SERVER_LIBRARY, SERVER_LIBRARY, SERVER_LIBRARY};

	sfs_server_step(server, to);
}

/* Is it the kernel's for good? */
static inline bool sfs_server_is_kernel(const enum sfs_server *server)
{
	return __atomic_load_n(server, __ATOMIC_RELAXED) >= SERVER_KERNEL;
}

static inline bool sfs_server_is_leased(const enum sfs_server *server)
{
	const enum sfs_server now = __atomic_load_n(server, __ATOMIC_RELAXED);

	return now == SERVER_LEASE || now == SERVER_KERNEL_LEASE;
}

/*
 * After the last close the inode may stay for a while, with its grant, descriptor and window: opening the file again costs nothing then. Under
 * sfs_files.lock.
 *
 *   PARK_NEVER    it goes with the last close
 *   PARK_MAY      it may stay
 *   PARK_PARKED   it stays: nobody but walks has it, and it is counted in sfs_files.parked
 *   PARK_LEAVING  counted still; the next to drop a reference takes it down
 */
enum sfs_park_state { PARK_NEVER, PARK_MAY, PARK_PARKED, PARK_LEAVING };

static const uint8_t sfs_park_next[] = {
	[PARK_NEVER] = SFS_TO(PARK_MAY),
	[PARK_MAY] = SFS_TO(PARK_NEVER) | SFS_TO(PARK_PARKED),
	[PARK_PARKED] = SFS_TO(PARK_MAY) | SFS_TO(PARK_LEAVING),
	[PARK_LEAVING] = SFS_TO(PARK_NEVER),
};

struct sfs_park {
	enum sfs_park_state state;
	uint8_t age; /* ticks of the service thread since the last close */
};

static inline void sfs_park_set(struct sfs_park *p, enum sfs_park_state to)
{
	if (p->state != to)
		sfs_check_next(sfs_park_next, p->state, to);
	__atomic_store_n(&p->state, to, __ATOMIC_RELAXED);
}

/* Also without the lock, for a guess. */
static inline bool sfs_parked(const struct sfs_park *p)
{
	return __atomic_load_n(&p->state, __ATOMIC_RELAXED) >= PARK_PARKED;
}

/* Somebody has it again, or it has been taken down: it is counted no more. */
static inline void sfs_park_leave(struct sfs_park *p)
{
	if (sfs_parked(p))
		sfs_park_set(p, p->state == PARK_PARKED ? PARK_MAY : PARK_NEVER);
}

/* It does not stay, or not any longer. */
static inline void sfs_park_end(struct sfs_park *p)
{
	sfs_park_set(p, sfs_parked(p) ? PARK_LEAVING : PARK_NEVER);
}

#endif
