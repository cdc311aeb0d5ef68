/* SPDX-License-Identifier: Apache-2.0 */
#include "io/flight.h"

#include <signal.h>

#include "base/sys.h"

static void land(struct sfs_inode *in, struct sfs_flight *fl)
{
	struct sfs_flights *f = &in->flights;

	if (fl->to)
		sfs_change_end(in, 1);
	fl->number = 0;
	f->used &= ~(1u << (fl - f->flight));
}

/* Does this thread run a signal handler on a stack of its own? Then addresses do not tell what lies below what. */
static bool on_another_stack(void)
{
	stack_t ss;

	return sys_call2(SYS_sigaltstack, 0, (long)&ss) < 0 || (ss.ss_flags & SS_ONSTACK);
}

/*
 * This thread has one already. A signal handler has interrupted its call, which goes on later and is to plan again; or a handler has left
 * it by a jump, and it never does: then its frame is below this one or at the same place, and it ends here.
 */
static void meet_own(struct sfs_inode *in, struct sfs_flight *fl, const void *frame)
{
	if ((uintptr_t)fl->frame <= (uintptr_t)frame && !on_another_stack())
		land(in, fl);
	else
		fl->voided = true;
}

static void meet_own_ones(struct sfs_inode *in, const void *frame)
{
	for (uint32_t bits = in->flights.used; unlikely(bits); bits &= bits - 1) {
		struct sfs_flight *fl = &in->flights.flight[__builtin_ctz(bits)];

		if (fl->thread == sfs_self())
			meet_own(in, fl, frame);
	}
}

bool sfs_flights_none(struct sfs_inode *in)
{
	meet_own_ones(in, __builtin_frame_address(0));
	return in->flights.used == 0;
}

bool sfs_flight_begin(struct sfs_inode *in, struct sfs_flying *fly)
{
	struct sfs_flights *f = &in->flights;
	const void *frame = __builtin_frame_address(0);
	struct sfs_flight *fl;

	meet_own_ones(in, frame);
	if (unlikely(f->used == (1u << SFS_FLIGHTS_MAX) - 1))
		return false;
	fl = &f->flight[__builtin_ctz(~f->used)];
	*fl = (struct sfs_flight){.thread = sfs_self(), .frame = frame, .number = ++f->last};
	f->used |= 1u << (fl - f->flight);
	*fly = (struct sfs_flying){fl, fl->number};
	return true;
}

bool sfs_flight_holds(const struct sfs_flying *fly)
{
	return fly->flight->number == fly->number && !fly->flight->voided;
}

void sfs_flight_end(struct sfs_inode *in, const struct sfs_flying *fly)
{
	if (unlikely(fly->flight->number != fly->number))
		return;
	land(in, fly->flight);
	/* It has kept staging files from being given back, and has not come to need them. */
	if (unlikely(in->staging.region_taken > 0 && !sfs_records_any(&in->counted) && in->flights.used == 0))
		sfs_staging_release(&in->vol->pool, &in->staging, NULL, 0);
}

void sfs_flight_stages(const struct sfs_flying *fly, const struct sfs_staged *st)
{
	for (int i = 0; i < st->extents; i++) {
		const uint32_t chunk = (uint32_t)(st->ext[i].b >> 32) - 1;

		fly->flight->chunks[chunk / 64] |= 1ull << chunk % 64;
		fly->flight->blocks += (uint32_t)((st->ext[i].off % SFS_BLOCK + st->ext[i].len + SFS_BLOCK - 1) / SFS_BLOCK);
	}
}

void sfs_flight_stores(struct sfs_inode *in, const struct sfs_flying *fly, uint64_t from, uint64_t to)
{
	fly->flight->from = from;
	fly->flight->to = to;
	sfs_change_begin(in, from, to, 1);
}
