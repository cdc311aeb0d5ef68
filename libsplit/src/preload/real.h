/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's own functions, found behind us in the search order (RTLD_NEXT). With 64-bit words every ...64 name is
 * the same function as its plain name, so only plain names are looked up.
 */
#ifndef SFS_PRELOAD_REAL_H
#define SFS_PRELOAD_REAL_H

#include <stdbool.h>
#include <stddef.h>

/* A number for each row of calls.def that can be called. */
enum pl_call {
#define FUNCTION(name)	  PL_##name,
#define NUMBER(name, ...) PL_##name,
#define LAZY		  PL_LAZY,
#include "calls.def"
	PL_COUNT
};

/* Any of the functions, by the registers: integers and pointers only, and no more than six. */
typedef long pl_function(long, long, long, long, long, long);

/* NULL: not looked up yet. */
#define PL_ABSENT ((void *)1) /* this C library does not have it */
extern void *pl_table[PL_COUNT] __attribute__((visibility("hidden")));
/* Look the function up and remember it; NULL where it is absent. */
void *pl_resolve(enum pl_call call) __attribute__((visibility("hidden"), cold));
/*
 * The functions that a program may call while it holds locks of its own (a malloc calls mmap); with volumes all but the
 * LAZY ones.
 */
void pl_resolve_early(bool volumes) __attribute__((visibility("hidden"), cold));

/*
 * The functions behind us that have these names, up to PL_NEXT_MAX, without dlsym, which old C libraries keep in a
 * library of its own, and which takes longer for one. NULL: there is none. False: nothing could be looked at.
 */
#define PL_NEXT_MAX PL_LAZY
bool pl_elf_next(const char *const *names, int n, void **found) __attribute__((visibility("hidden"), cold));
/* Has the process no other objects than its program, us, the C library and its loader, and has no code run before ours? */
bool pl_elf_few(void) __attribute__((visibility("hidden"), cold));

static inline void *pl_found(enum pl_call call)
{
	void *fn = __atomic_load_n(&pl_table[call], __ATOMIC_ACQUIRE);

	return __builtin_expect(fn > PL_ABSENT, 1) ? fn : pl_resolve(call);
}

/* The same of one that every C library has. */
#define pl_real(call) pl_found(call)

/* The real function with its declared type; REAL_AS for names that no header declares. */
#define REAL(name)	    ((__typeof__(name) *)pl_real(PL_##name))
#define REAL_AS(type, name) ((type)pl_real(PL_##name))

#endif
