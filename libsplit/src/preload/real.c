/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the C library's own functions: dlsym where there is one, the objects' symbol tables where not. */
#include "real.h"
#include "real_fallback.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#define PL_RTLD_NEXT ((void *)-1l)

extern void *dlsym(void *handle, const char *name) __attribute__((weak));

/* Where the loader has written already: a process that has no volume pays for each page. */
void *pl_table[PL_REAL_COUNT] __attribute__((section(".data")));

/* Not pointers, which the loader would have to write in every process. */
#define PL_NAME_ROOM(name, fallback) char name##_[sizeof(#name)];
#define PL_NAME_TEXT(name, fallback) #name,
#define PL_NAME_AT(name, fallback)   offsetof(struct texts, name##_),
static const struct texts {
	PL_REALS(PL_NAME_ROOM, PL_NAME_ROOM)
} texts = {PL_REALS(PL_NAME_TEXT, PL_NAME_TEXT)};
static const uint16_t text_at[] = {PL_REALS(PL_NAME_AT, PL_NAME_AT)};

static const char *name_of(int index)
{
	return (const char *)&texts + text_at[index];
}

/* A system call with the C library's convention for results. */
#define PL_CALL(name, nr)                                                                                                      \
	static long call_##name(long a, long b, long c, long d, long e, long f)                                                \
	{                                                                                                                      \
		return pl_ret(sys_call6(nr, a, b, c, d, e, f));                                                                \
	}
#define PL_NONE(name, fallback)
PL_REALS(PL_CALL, PL_NONE)

#define PL_CALL_PTR(name, nr)	  (void *)call_##name,
#define PL_FN_PTR(name, fallback) (void *)fallback,
static void *const fallbacks[] = {PL_REALS(PL_CALL_PTR, PL_FN_PTR)};

/*
 * dlsym decides by its return address who "next" starts from, so it must never be a tail call from here; storing the result
 * sees to that.
 */
void *pl_resolve(int index)
{
	const char *const name = name_of(index);
	void *fn = dlsym ? dlsym(PL_RTLD_NEXT, name) : NULL;

	/* A library that came by dlopen (old librt, libaio, liburing) is not behind us for dlsym. */
	if (!fn)
		pl_elf_next(&name, 1, &fn);
	if (!fn)
		fn = fallbacks[index];
	__atomic_store_n(&pl_table[index], fn, __ATOMIC_RELEASE);
	return fn;
}

static void clear_dlerror(void)
{
	char *(*dlerror)(void) = dlsym ? (char *(*)(void))dlsym(PL_RTLD_NEXT, "dlerror") : NULL;

	if (dlerror)
		dlerror(); /* names this C library does not have must not show up in the program's own dlerror() */
}

/* In a process that has no volume: what allocators call with locks held under which dlsym would allocate. */
static void resolve_first(void)
{
	static const short first[] = {PL_mmap, PL_open, PL_openat, PL_read, PL_write, PL_close, PL_fstat};
	enum { N = sizeof(first) / sizeof(first[0]) };
	const char *wanted[N];
	void *found[N];

	for (int i = 0; i < N; i++)
		wanted[i] = name_of(first[i]);
	pl_elf_next(wanted, N, found);
	for (int i = 0; i < N; i++) {
		if (found[i])
			__atomic_store_n(&pl_table[first[i]], found[i], __ATOMIC_RELEASE);
		else
			pl_resolve(first[i]);
	}
}

void pl_resolve_early(int everything)
{
	if (!everything) {
		resolve_first();
		return;
	}
	for (int i = 0; i < PL_REAL_COUNT; i++) {
		/* Libraries that may come later by dlopen: look again when they are first called. */
		if (i >= PL_aio_read && i <= PL_io_uring_setup)
			continue;
		/* On FILEs, which no signal handler uses: each when it is first called. */
		if (i >= PL_fwide && i <= PL___vprintf_chk)
			continue;
		pl_real(i);
	}
	clear_dlerror();
}
