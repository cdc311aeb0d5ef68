/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers that are made from calls.def, and syscall(2). Those that are written by hand are in rw.c, process.c and
 * signals.c.
 */
#include "preload.h"
#include "stream.h"

#include <stdarg.h>

/* What is done for a call, whichever way it came. */
static long serve(const struct request *q)
{
#define POLICY(name, policy)                                                                                           \
	case PL_##name:                                                                                                \
		return do_##policy(q);
#define CALL(name, result, number, policy, ...) POLICY(name, policy)
#define OWN(name, result, number, policy, ...)	POLICY(name, policy)
#define NAME(name, result, policy, ...)		POLICY(name, policy)
#define NUMBER(name, number, policy, ...)	POLICY(name, policy)
#define OUT(name, ...)				POLICY(name, out)
#define WIDE(name, ...)				POLICY(name, wide)
	switch (q->call) {
#include "calls.def"
	default:
		return pl_make(q);
	}
}

long pl_call(long a, long b, long c, long d, long e, long f, enum pl_call call)
{
	const long args[6] = {a, b, c, d, e, f};
	const struct request q = {.call = call, .named = true, .a = args};
	const long r = pl_idle ? pl_make(&q) : serve(&q);

	switch (pl_rows[call].result) {
	case PL_I:
	case PL_L:
		return pl_ret(r);
	case PL_P:
		if (!pl_failed(&q, r))
			return r;
		pl_ret(r);
		return 0;
	case PL_E:
		return -r;
	default:
		return r;
	}
}

/* The real function, if it has been looked up. */
static inline pl_function *ready(enum pl_call call)
{
	void *fn = __atomic_load_n(&pl_table[call], __ATOMIC_ACQUIRE);

	return likely(fn > PL_ABSENT) ? (pl_function *)fn : NULL;
}

/* Is it another FILE, or stdout that has been used already? */
static inline bool not_stdout(long file)
{
	const FILE *unused = __atomic_load_n(&pl_stdout, __ATOMIC_RELAXED);

	return !unused || file != (long)unused;
}

/* A wrapper has up to six arguments: integers and addresses, in registers. The list of other names may be empty. */
#define WRAPPER_OF(name, others, test)                                                                                 \
	WRAPPER long w_##name(long x0, long x1, long x2, long x3, long x4, long x5)                                    \
	{                                                                                                              \
		pl_function *fn = ready(PL_##name);                                                                    \
                                                                                                                       \
		return likely(fn && (test)) ? fn(x0, x1, x2, x3, x4, x5) : pl_call(x0, x1, x2, x3, x4, x5, PL_##name); \
	}                                                                                                              \
	EXPORT_ALL(name, others)
#define EXPORT_ALL(name, others)                                                                                       \
	__asm__(".irp n, " #name ", " others                                                                           \
		"\n\t.ifnb \\n\n\t.globl \\n\n\t.type \\n, @function\n\t.set \\n, w_" #name "\n\t.endif\n\t.endr");

#define NAME(name, result, policy, arguments, ...)	   WRAPPER_OF(name, #__VA_ARGS__, pl_idle)
#define CALL(name, result, number, policy, arguments, ...) WRAPPER_OF(name, #__VA_ARGS__, pl_idle)
#define WIDE(name, result, n, ...)			   WRAPPER_OF(name, #__VA_ARGS__, pl_idle)
#define OUT(name, result, n, ...)			   WRAPPER_OF(name, #__VA_ARGS__, not_stdout(FILE_##n))
#define FILE_0						   x0
#define FILE_1						   x1
#define FILE_3						   x3
#define FILE_S						   (long)pl_stdout
/* A va_list is passed on as an address on both architectures. */
#define VARIADIC(name, vname, n, ...)                                                                                  \
	WRAPPER long w_##name(PARAMETERS_##n, ...)                                                                     \
	{                                                                                                              \
		va_list ap;                                                                                            \
		long r;                                                                                                \
                                                                                                                       \
		va_start(ap, LAST_##n);                                                                                \
		r = w_##vname(ARGUMENTS_##n);                                                                          \
		va_end(ap);                                                                                            \
		return r;                                                                                              \
	}                                                                                                              \
	EXPORT_ALL(name, #__VA_ARGS__)
#define PARAMETERS_1 long x0
#define PARAMETERS_2 long x0, long x1
#define PARAMETERS_3 long x0, long x1, long x2
#define LAST_1	     x0
#define LAST_2	     x1
#define LAST_3	     x2
#define ARGUMENTS_1  x0, (long)&ap, 0, 0, 0, 0
#define ARGUMENTS_2  x0, x1, (long)&ap, 0, 0, 0
#define ARGUMENTS_3  x0, x1, x2, (long)&ap, 0, 0
#include "calls.def"

/*
 * Programs that make file calls by number (allocators, Rust, xfstests, fio) get what the named call would do. What is
 * not about our files goes to the kernel as it is.
 */
WRAPPER long w_syscall(long n, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = {a, b, c, d, e, f};
	struct request q = {.named = false, .a = args};

	if (likely(pl_idle) || n < 0)
		return pl_ret(sys_call6(n, a, b, c, d, e, f));
#define BY_NUMBER(name, number)                                                                                        \
	case number:                                                                                                   \
		q.call = PL_##name;                                                                                    \
		break;
#define CALL(name, result, number, ...) BY_NUMBER(name, number)
#define OWN(name, result, number, ...)	BY_NUMBER(name, number)
#define NUMBER(name, number, ...)	BY_NUMBER(name, number)
	switch (n) {
#include "calls.def"
	default:
		return pl_ret(sys_call6(n, a, b, c, d, e, f));
	}
	return pl_ret(serve(&q));
}
EXPORT(syscall, w_syscall);
