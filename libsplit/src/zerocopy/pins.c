/* SPDX-License-Identifier: Apache-2.0 */
#include "zerocopy/pins.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/sys.h"

#define PAGE	   4096ull
#define SLAB_BYTES (64ul << 10)

struct sfs_pin_table sfs_pin_table = {.lock = {.brief = true}};

static uint64_t page_down(uint64_t off)
{
	return off & ~(PAGE - 1);
}

static uint64_t page_up(uint64_t off)
{
	return off > UINT64_MAX - PAGE ? page_down(UINT64_MAX) : page_down(off + PAGE - 1);
}

static struct sfs_pin **chain_of(const void *p)
{
	return &sfs_pin_table.chain[(uintptr_t)p * SFS_HASH_FACTOR >> 52];
}
_Static_assert(SFS_PIN_CHAINS == 1u << (64 - 52), "the upper bits of a hash are a chain");

/* Objects are never unmapped: who follows a chain without the lock finds a pin behind every pointer. */
static void *slab(void)
{
	void *p = sys_mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return sys_is_err(p) ? NULL : p;
}

static struct sfs_pin *free_pin_locked(void)
{
	struct sfs_pin *pin = sfs_pin_table.free_pins;

	if (!pin) {
		pin = slab();
		if (!pin)
			return NULL;
		for (size_t i = 0; i < SLAB_BYTES / sizeof(*pin); i++) {
			pin[i].next_hash = sfs_pin_table.free_pins;
			sfs_pin_table.free_pins = &pin[i];
		}
		pin = sfs_pin_table.free_pins;
	}
	sfs_pin_table.free_pins = pin->next_hash;
	return pin;
}

static struct sfs_view *view_alloc(void)
{
	struct sfs_view *v;

	sfs_mutex_take(&sfs_pin_table.lock);
	v = sfs_pin_table.free_views;
	if (!v && (v = slab()) != NULL) {
		for (size_t i = 0; i < SLAB_BYTES / sizeof(*v); i++) {
			v[i].next = sfs_pin_table.free_views;
			sfs_pin_table.free_views = &v[i];
		}
		v = sfs_pin_table.free_views;
	}
	if (v)
		sfs_pin_table.free_views = v->next;
	sfs_mutex_drop(&sfs_pin_table.lock);
	return v;
}

static void view_free(struct sfs_view *v)
{
	sfs_mutex_take(&sfs_pin_table.lock);
	v->next = sfs_pin_table.free_views;
	sfs_pin_table.free_views = v;
	sfs_mutex_drop(&sfs_pin_table.lock);
}

/* Out of the list of its file, and unmapped. It has no pins. */
static void view_end(struct sfs_pins *pins, struct sfs_view *v)
{
	struct sfs_view **at = &pins->views;

	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	sfs_view_unmap(v);
	view_free(v);
}

/* The view that a snapshot which ends there can be a part of, or NULL with *err set. */
static struct sfs_view *view_for(struct sfs_pins *pins, int fd, uint64_t end, int *err)
{
	struct sfs_view *v = pins->views;

	if (v && v->state == SFS_VIEW_CURRENT && v->len >= end)
		return v;
	if (v && !v->pins)
		view_end(pins, v);
	*err = -ENOMEM;
	v = view_alloc();
	if (!v)
		return NULL;
	*err = sfs_view_map(v, fd, end);
	if (*err < 0) {
		view_free(v);
		return NULL;
	}
	v->next = pins->views;
	pins->views = v;
	return v;
}

static struct sfs_pin *find_locked(const void *file, const void *p)
{
	struct sfs_pin *pin = *chain_of(p);

	while (pin && (pin->p != p || pin->file != file))
		pin = pin->next_hash;
	return pin;
}

/* A new one, not in any list but the table's chain yet. */
static struct sfs_pin *pin_new_locked(void *file, struct sfs_view *v, const uint8_t *p)
{
	struct sfs_pin *pin = sfs_pin_table.count < SFS_PINS_MAX ? free_pin_locked() : NULL, **chain = chain_of(p);

	if (!pin)
		return NULL;
	__atomic_store_n(&sfs_pin_table.count, sfs_pin_table.count + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&pin->file, file, __ATOMIC_RELAXED);
	__atomic_store_n(&pin->p, p, __ATOMIC_RELAXED);
	pin->view = v;
	pin->count = 0;
	__atomic_store_n(&pin->next_hash, *chain, __ATOMIC_RELAXED);
	__atomic_store_n(chain, pin, __ATOMIC_RELEASE);
	return pin;
}

static void into_view(struct sfs_view *v, struct sfs_pin *pin)
{
	pin->next = v->pins;
	pin->prev = &v->pins;
	if (pin->next)
		pin->next->prev = &pin->next;
	v->pins = pin;
}

int sfs_pin(struct sfs_pins *pins, void *file, int fd, uint64_t off, uint64_t end, const uint8_t **p)
{
	int err = 0;
	struct sfs_view *v = view_for(pins, fd, end, &err);
	struct sfs_pin *pin;
	bool full;

	if (!v)
		return err;
	*p = v->base + off;
	sfs_mutex_take(&sfs_pin_table.lock);
	pin = find_locked(file, *p);
	if (!pin)
		pin = pin_new_locked(file, v, *p);
	full = sfs_pin_table.count == SFS_PINS_MAX;
	sfs_mutex_drop(&sfs_pin_table.lock);
	if (!pin)
		return full ? -ENOSPC : -ENOMEM;
	if (pin->count++ == 0) {
		pin->off = off;
		pin->end = end;
		pin->state = SFS_PIN_HELD;
		into_view(v, pin);
		pins->held++;
		pins->total++;
	} else if (end > pin->end) {
		pin->end = end;
	}
	return 0;
}

void *sfs_pin_file(const void *p)
{
	const struct sfs_pin *pin = __atomic_load_n(chain_of(p), __ATOMIC_ACQUIRE);
	void *file = NULL;

	/* It may be taken out and put into another chain meanwhile, in any of which it ends: then the lock tells. */
	for (unsigned n = 0; pin && !file && n < SFS_PIN_CHAINS; n++) {
		if (__atomic_load_n(&pin->p, __ATOMIC_RELAXED) == p)
			file = __atomic_load_n(&pin->file, __ATOMIC_RELAXED);
		pin = __atomic_load_n(&pin->next_hash, __ATOMIC_ACQUIRE);
	}
	if (!file) {
		const uint64_t signals = sfs_signals_block();

		sfs_mutex_take(&sfs_pin_table.lock);
		for (pin = *chain_of(p); pin && pin->p != p; pin = pin->next_hash)
			;
		file = pin ? pin->file : NULL;
		sfs_mutex_drop(&sfs_pin_table.lock);
		sfs_signals_restore(signals);
	}
	return file;
}

static void pin_end(struct sfs_pins *pins, struct sfs_pin *pin)
{
	struct sfs_pin **at = chain_of(pin->p);

	pins->held -= pin->state == SFS_PIN_HELD;
	pins->total--;
	*pin->prev = pin->next;
	if (pin->next)
		pin->next->prev = pin->prev;
	pin->state = SFS_PIN_FREE;
	sfs_mutex_take(&sfs_pin_table.lock);
	while (*at != pin)
		at = &(*at)->next_hash;
	__atomic_store_n(at, pin->next_hash, __ATOMIC_RELAXED);
	__atomic_store_n(&pin->p, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&pin->next_hash, sfs_pin_table.free_pins, __ATOMIC_RELAXED);
	sfs_pin_table.free_pins = pin;
	__atomic_store_n(&sfs_pin_table.count, sfs_pin_table.count - 1, __ATOMIC_RELAXED);
	sfs_mutex_drop(&sfs_pin_table.lock);
}

int sfs_unpin(struct sfs_pins *pins, void *file, const void *p)
{
	struct sfs_pin *pin;
	struct sfs_view *v;

	sfs_mutex_take(&sfs_pin_table.lock);
	pin = find_locked(file, p);
	sfs_mutex_drop(&sfs_pin_table.lock);
	if (!pin)
		return -EINVAL;
	if (--pin->count > 0)
		return 0;
	v = pin->view;
	pin_end(pins, pin);
	/* One that is current stays, so that the next snapshot costs nothing. */
	if (!v->pins && (v->state == SFS_VIEW_STALE || v != pins->views))
		view_end(pins, v);
	return 0;
}

bool sfs_pins_meet_slow(const struct sfs_pins *pins, uint64_t from, uint64_t to)
{
	for (const struct sfs_view *v = pins->views; v; v = v->next)
		for (const struct sfs_pin *pin = v->pins; pin; pin = pin->next)
			if (pin->state == SFS_PIN_HELD && from < page_up(pin->end) && page_down(pin->off) < to)
				return true;
	return false;
}

static int save_pin(struct sfs_pins *pins, struct sfs_pin *pin, uint64_t from, uint64_t to)
{
	const uint64_t first = page_down(pin->off), end = page_up(pin->end);
	const bool all = from <= first && to >= end;
	int r = 0;

	if (from >= end || to <= first)
		return 0;
	r = sfs_view_save(pin->view, from > first ? from : first, to < end ? to : end, &pins->saved);
	if (r == 0 && all) {
		pin->state = SFS_PIN_SAVED;
		pins->held--;
	}
	return r;
}

int sfs_pins_save_slow(struct sfs_pins *pins, uint64_t from, uint64_t to)
{
	int r = 0;

	for (struct sfs_view *v = pins->views; v && r == 0; v = v->next)
		for (struct sfs_pin *pin = v->pins; pin && r == 0; pin = pin->next)
			if (pin->state == SFS_PIN_HELD)
				r = save_pin(pins, pin, from, to);
	return r;
}

void sfs_pins_idle(struct sfs_pins *pins)
{
	struct sfs_view *next;

	for (struct sfs_view *v = pins->views; v; v = next) {
		next = v->next;
		if (!v->pins)
			view_end(pins, v);
	}
}

/*
 * A view that is mapped here by its saved pages only. Pins of it that were not saved are given back as others are;
 * what they show is a fault.
 */
void sfs_pins_inherit(struct sfs_pins *pins)
{
	for (struct sfs_view *v = pins->views; v; v = v->next) {
		v->state = SFS_VIEW_STALE;
		v->inherited = true;
		for (struct sfs_pin *pin = v->pins; pin; pin = pin->next)
			pin->state = SFS_PIN_SAVED;
	}
	pins->held = 0;
	sfs_pins_idle(pins);
}

bool sfs_pins_any(void)
{
	return __atomic_load_n(&sfs_pin_table.count, __ATOMIC_RELAXED) > 0;
}

void sfs_pins_forget_locks(void)
{
	sfs_pin_table.lock = (struct sfs_mutex){.brief = true};
}
