/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's own functions: found in the objects' symbol tables, those that are looked up later by dlsym where there is one; else made
 * of system calls.
 */
#include "preload.h"

#include <signal.h>

#include "lease/opening.h"

#define PL_RTLD_NEXT ((void *)-1l)

extern void *dlsym(void *handle, const char *name) __attribute__((weak));

/* Where the loader has written already: a process that has no volume pays for each page. */
void *pl_table[PL_COUNT] __attribute__((section(".data")));
bool pl_idle __attribute__((section(".data"))) = true;

#define NO
#define FD(i)		       .fd = (i) + 1
#define FDS(i, j)	       .fd = (i) + 1, .fd2 = (j) + 1
#define PATH(p)		       .path = (p) + 1
#define LINK(p)		       .path = (p) + 1, .nofollow = true
#define AT(d, p)	       .fd = (d) + 1, .path = (p) + 1
#define LINK_AT(d, p)	       .fd = (d) + 1, .path = (p) + 1, .nofollow = true
#define AT_FLAGS(d, p, f)      .fd = (d) + 1, .path = (p) + 1, .flags = (f) + 1
#define FROM_TO(p, q)	       .path = (p) + 1, .path2 = (q) + 1, .nofollow = true
#define FROM_TO_AT(d, p, e, q) .fd = (d) + 1, .path = (p) + 1, .fd2 = (e) + 1, .path2 = (q) + 1, .nofollow = true

#define CALL(name, result, number, policy, arguments, ...) [PL_##name] = {number, PL_##result, arguments},
#define OWN(name, result, number, policy, arguments, ...)  [PL_##name] = {number, PL_##result, arguments},
#define NUMBER(name, number, policy, arguments)		   [PL_##name] = {number, PL_L, arguments},
#define NAME(name, result, policy, arguments, ...)	   [PL_##name] = {-1, PL_##result, arguments},
#define OUT(name, result, n, ...)			   [PL_##name] = {-1, PL_##result, .fd = PLACE_##n},
#define WIDE(name, result, n, ...)			   [PL_##name] = {-1, PL_##result, .fd = PLACE_##n},
#define PLACE_S						   0
#define PLACE_0						   1
#define PLACE_1						   2
#define PLACE_2						   3
#define PLACE_3						   4
const struct pl_row pl_rows[PL_COUNT] = {
#include "calls.def"
};

/* Not pointers, which the loader would have to write in every process. */
static const struct texts {
#define FUNCTION(name) char name##_[sizeof(#name)];
#include "calls.def"
} texts = {
#define FUNCTION(name) #name,
#include "calls.def"
};
static const unsigned short text_at[PL_COUNT] = {
#define FUNCTION(name) [PL_##name] = 1 + offsetof(struct texts, name##_),
#include "calls.def"
};

/* NULL: a system call without a function. */
static const char *name_of(enum pl_call call)
{
	return text_at[call] ? (const char *)&texts + text_at[call] - 1 : NULL;
}

/*
 * dlsym decides by its return address who "next" starts from, so it must never be a tail call from here; storing the
 * result sees to that.
 */
void *pl_resolve(enum pl_call call)
{
	const char *const name = name_of(call);
	void *fn = __atomic_load_n(&pl_table[call], __ATOMIC_ACQUIRE);

	if (fn || !name)
		return fn > PL_ABSENT ? fn : NULL;
	fn = dlsym ? dlsym(PL_RTLD_NEXT, name) : NULL;
	/* A library that came by dlopen (old librt, libaio, liburing) is not behind us for dlsym. */
	if (!fn)
		pl_elf_next(&name, 1, &fn);
	__atomic_store_n(&pl_table[call], fn ? fn : PL_ABSENT, __ATOMIC_RELEASE);
	return fn;
}

/* Absent is what no object behind us has. Without dlsym, which takes microseconds for a few, and allocates for one that is not there. */
static void resolve_all(const short *calls, int n)
{
	const char *wanted[PL_LAZY];
	void *found[PL_LAZY];
	bool searched;

	for (int i = 0; i < n; i++)
		wanted[i] = name_of((enum pl_call)calls[i]);
	searched = pl_elf_next(wanted, n, found);
	for (int i = 0; i < n; i++) {
		if (found[i] || searched)
			__atomic_store_n(&pl_table[calls[i]], found[i] ? found[i] : PL_ABSENT, __ATOMIC_RELEASE);
		else
			pl_resolve((enum pl_call)calls[i]);
	}
}

void pl_resolve_early(bool volumes)
{
	/* In a process that has no volume: what allocators call with locks held under which dlsym would allocate. */
	static const short first[] = {PL_mmap, PL_open, PL_openat, PL_read, PL_write, PL_close, PL_fstat};
	short calls[PL_LAZY];
	int n = 0;

	if (!volumes) {
		resolve_all(first, sizeof(first) / sizeof(first[0]));
		return;
	}
	for (short call = 0; call < PL_LAZY; call++)
		if (name_of((enum pl_call)call))
			calls[n++] = call;
	resolve_all(calls, n);
}

/* abort(), and a fortified call whose buffer is too small: end the process the way the C library does. */
static __attribute__((noreturn)) long abort_process(void)
{
	sys_call2(SYS_kill, sys_getpid(), SIGABRT);
	sys_call1(SYS_exit_group, 127);
	__builtin_unreachable();
}

/* Binaries of old C libraries pass the version of struct stat; 0, on x86-64 also 1, is the kernel's layout. */
static long versioned_stat(const struct request *q, int at_flags)
{
	struct stat *st = (struct stat *)pl_next(q);

	if (q->a[0] != 0 && q->a[0] != 1)
		return -EINVAL;
	return pl_path(q) ? sys_fstatat(pl_fd(q), pl_path(q), st, at_flags | pl_at_flags(q)) : sys_fstat(pl_fd(q), st);
}

/* A function that the C library does not have: the system call of the row, or what is known to do the same. */
static __attribute__((cold)) long substitute(const struct request *q)
{
	const long *a = q->a;
	const short number = pl_rows[q->call].number;

	switch (q->call) {
	case PL_preadv2:
	case PL_pwritev2: /* the offset is two arguments to the kernel */
		return sys_call6(number, a[0], a[1], a[2], a[3], 0, a[4]);
	case PL_stat:
	case PL_lstat:
		return sys_fstatat(AT_FDCWD, pl_path(q), (struct stat *)a[1],
				   q->call == PL_lstat ? AT_SYMLINK_NOFOLLOW : 0);
	case PL___xstat:
	case PL___fxstat:
	case PL___fxstatat:
		return versioned_stat(q, 0);
	case PL___lxstat:
		return versioned_stat(q, AT_SYMLINK_NOFOLLOW);
	case PL_mknod:
		return sys_call4(SYS_mknodat, AT_FDCWD, a[0], a[1], a[2]);
	case PL_closefrom:
		return sys_call3(SYS_close_range, (int)a[0] < 0 ? 0 : a[0], ~0u, 0);
	case PL__Fork:
		return sys_call5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	case PL_abort:
		abort_process();
	case PL___read_chk:
		return (size_t)a[2] > (size_t)a[3] ? abort_process() : sys_read((int)a[0], (void *)a[1], (size_t)a[2]);
	case PL___pread_chk:
		return (size_t)a[2] > (size_t)a[4] ? abort_process()
						   : sys_pread((int)a[0], (void *)a[1], (size_t)a[2], a[3]);
	case PL___open_2:
		return sys_openat(AT_FDCWD, pl_path(q), (int)a[1], 0);
	case PL___openat_2:
		return sys_openat((int)a[0], pl_path(q), (int)a[2], 0);
	default:
		return number < 0 ? -ENOSYS : sys_call6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

long pl_make_open(const struct request *q)
{
	const struct sfs_opening announced = sfs_opening();
	const long r = pl_make(q);

	sfs_opened(announced);
	return r;
}

long pl_make_new(const struct request *q)
{
	extern int *__errno_location(void) __attribute__((weak, visibility("default")));
	long r, err;

	do {
		r = pl_make_open(q);
		if (likely(!pl_failed(q, r)))
			break;
		err = r != 0 && r != PL_FAILED ? r : __errno_location ? -*__errno_location() : 0;
	} while (sfs_numbers_back(err, pl_rows[q->call].path != 0));
	return r;
}

long pl_make(const struct request *q)
{
	const long *a = q->a;
	pl_function *fn;
	long r;

	if (!q->named)
		return sys_call6(pl_rows[q->call].number, a[0], a[1], a[2], a[3], a[4], a[5]);
	fn = (pl_function *)pl_found(q->call);
	if (unlikely(!fn))
		return substitute(q);
	r = fn(a[0], a[1], a[2], a[3], a[4], a[5]);
	switch (pl_rows[q->call].result) {
	case PL_I:
		return (int)r == -1 ? PL_FAILED
				    : (long)(unsigned)r; /* fcntl(F_GETOWN) may be another negative number */
	case PL_L:
		return r == -1 ? PL_FAILED : r;
	case PL_E:
		return -(long)(int)r;
	case PL_R:
		return (int)r;
	case PL_P:
		return r;
	default:
		return 0;
	}
}
