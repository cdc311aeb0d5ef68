/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of files that the program looks at: splitfs_peek(3). A snapshot is a part of a view and costs no copy; it
 * is pinned until the program gives it back.
 *
 *   state   what is true                                                       goes on as
 *   HELD    its bytes are the file's: who is about to change them saves them   SAVED when all of its pages are saved
 *           first, or writes elsewhere
 *   SAVED   its bytes are private memory: the file may do what it likes        gone when it is given back
 *
 * The rule: while a pin is HELD, this process alone may change the file (an EXCLUSIVE grant), and each of its ways to
 * do so asks here. What takes the grant away saves all pins of the file first.
 *
 * Everything is under the lock of the file; the table of all pins, by address, has a lock of its own, which is the
 * last one taken.
 */
#ifndef SFS_PINS_H
#define SFS_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "zerocopy/view.h"

#define SFS_PINS_MAX 65536u /* of the process */

enum sfs_pin_state { SFS_PIN_FREE, SFS_PIN_HELD, SFS_PIN_SAVED };

struct sfs_pins;
struct sfs_pin {
	struct sfs_pin *next_hash;    /* in its chain of the table, or of the free ones */
	struct sfs_pin *next, **prev; /* of the view */
	const uint8_t *p;	      /* the address that the program has */
	void *file;		      /* whose it is */
	struct sfs_view *view;
	uint64_t off, end; /* bytes of the file, not none */
	uint32_t count;	   /* how often it is to be given back */
	enum sfs_pin_state state;
};

/* All pins of the process by address, and objects that are free. Chains are also followed without the lock. */
#define SFS_PIN_CHAINS 4096u
struct sfs_pin_table {
	struct sfs_mutex lock;
	struct sfs_pin *chain[SFS_PIN_CHAINS];
	struct sfs_pin *free_pins;
	struct sfs_view *free_views;
	uint32_t count;
};
extern struct sfs_pin_table sfs_pin_table __attribute__((visibility("hidden")));

/* Of one file. */
struct sfs_pins {
	struct sfs_view *views; /* the first one is the only one that may be CURRENT */
	uint32_t held;
	uint32_t total;
	uint64_t saved; /* bytes of them that have been saved, for who counts */
};

/*
 * Pin [off, end) of `file`, open as fd, which is not empty and has no holes. *p: where it is. 0; -ENOSPC: there are
 * too many; -ENOMEM. The same range, or another one that begins there, may have the same address: it is pinned until
 * it has been given back as often.
 */
int sfs_pin(struct sfs_pins *pins, void *file, int fd, uint64_t off, uint64_t end, const uint8_t **p);
/* No lock held: the file that has a pin at p, or NULL. It may be gone when the answer is looked at. */
void *sfs_pin_file(const void *p);
/* Give it back. 0; -EINVAL: this file has none at p. */
int sfs_unpin(struct sfs_pins *pins, void *file, const void *p);

bool sfs_pins_meet_slow(const struct sfs_pins *pins, uint64_t from, uint64_t to);
int sfs_pins_save_slow(struct sfs_pins *pins, uint64_t from, uint64_t to);

/* Does a HELD pin have a page of [from, to)? */
static inline bool sfs_pins_meet(const struct sfs_pins *pins, uint64_t from, uint64_t to)
{
	return __builtin_expect(pins->held > 0, 0) && sfs_pins_meet_slow(pins, from, to);
}

/* Before [from, to) of the file changes. 0, or a negative errno value: it must not. */
static inline int sfs_pins_save(struct sfs_pins *pins, uint64_t from, uint64_t to)
{
	return __builtin_expect(pins->held > 0, 0) ? sfs_pins_save_slow(pins, from, to) : 0;
}
static inline int sfs_pins_save_all(struct sfs_pins *pins)
{
	return sfs_pins_save(pins, 0, UINT64_MAX);
}

/* The file goes, or has been given up: a view that has no pins is unmapped. */
void sfs_pins_idle(struct sfs_pins *pins);
/* Has the process any? */
bool sfs_pins_any(void);
/* In the child of a fork: what was saved is there, and nothing else. */
void sfs_pins_inherit(struct sfs_pins *pins);
void sfs_pins_forget_locks(void);

#endif
