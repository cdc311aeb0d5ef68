/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only assembler can say, for each architecture: a system call, the thread pointer, a pause while spinning, a new thread, where a signal
 * handler has interrupted it (mcontext_t).
 */
#ifndef SFS_ARCH_H
#define SFS_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "base/hash.h"

/* Where programs may have memory: not NULL and its neighbours (vm.mmap_min_addr), and not the kernel's part. */
#define SFS_USER_MIN 65536ul
#if defined(__x86_64__)
#define SFS_USER_MAX 0x7ffffffff000ul
#else
#define SFS_USER_MAX 0x000ffffffffff000ul /* up to 52 bits, for who asks for them */
#endif

/* Are these n bytes, or some of them, the kernel's? It refuses them before it looks at anything else. */
static inline bool sfs_user_kernel(const void *p, size_t n)
{
	return n > SFS_USER_MAX || (uintptr_t)p > SFS_USER_MAX - n;
}

/* Are these n bytes where no program has memory? */
static inline bool sfs_user_never(const void *p, size_t n)
{
	return n > 0 && ((uintptr_t)p < SFS_USER_MIN || sfs_user_kernel(p, n));
}

#if defined(__x86_64__)

static inline long sys_trap6(long n, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

/* What tells threads apart: the word at fs:0, where every C library has the thread pointer itself. */
static inline void *sfs_self(void)
{
	void *p;

	__asm__("mov %%fs:0, %0" : "=r"(p));
	return p;
}

static inline void sfs_relax(void)
{
	__asm__ volatile("pause" ::: "memory");
}

/* Stores before it, and after it, in this order for other threads; also those past the caches. */
static inline void sfs_store_fence(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

/* Of a clock that goes on at the same speed on all processors, read out of order with what stands around it. */
static inline uint64_t sfs_ticks(void)
{
	return __builtin_ia32_rdtsc();
}

#define SFS_PC(mcontext) ((uintptr_t)(mcontext)->gregs[REG_RIP])
#define SFS_SP(mcontext) ((uintptr_t)(mcontext)->gregs[REG_RSP])
/* Of a copy: where the registers are that lie beside the original. */
#define SFS_FORGET_FP(mcontext) ((mcontext)->fpregs = NULL)

/*
 * clone(2) of a thread that runs fn, which must not return, on an empty stack. `self` is its thread pointer, and must hold its own
 * address. Returns the thread's number or a negative errno value.
 */
static inline long sys_clone_thread(unsigned long flags, void *stack_top, void *self, void (*fn)(void))
{
	register void *tls __asm__("r8") = self;
	long ret;

	__asm__ volatile("xor %%r10d, %%r10d\n\t"
			 "xor %%edx, %%edx\n\t"
			 "syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call *%%rbx\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(ret), "+r"(tls)
			 : "a"(SYS_clone), "D"(flags), "S"(stack_top), "b"(fn)
			 : "rcx", "rdx", "r10", "r11", "memory");
	return ret;
}

#elif defined(__aarch64__)

static inline long sys_trap6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
}

static inline void *sfs_self(void)
{
	void *p;

	__asm__("mrs %0, tpidr_el0" : "=r"(p));
	return p;
}

static inline void sfs_relax(void)
{
	__asm__ volatile("yield" ::: "memory");
}

static inline void sfs_store_fence(void)
{
	__asm__ volatile("dmb ishst" ::: "memory");
}

static inline uint64_t sfs_ticks(void)
{
	uint64_t t;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
}

#define SFS_PC(mcontext)	((uintptr_t)(mcontext)->pc)
#define SFS_SP(mcontext)	((uintptr_t)(mcontext)->sp)
#define SFS_FORGET_FP(mcontext) ((void)(mcontext)) /* they are in it */

/* As above; the thread pointer is the fourth argument here. */
static inline long sys_clone_thread(unsigned long flags, void *stack_top, void *self, void (*fn)(void))
{
	register long x8 __asm__("x8") = SYS_clone;
	register long x0 __asm__("x0") = (long)flags;
	register void *x1 __asm__("x1") = stack_top;
	register long x2 __asm__("x2") = 0;
	register void *x3 __asm__("x3") = self;
	register long x4 __asm__("x4") = 0;
	register void (*x9)(void) __asm__("x9") = fn;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x30, xzr\n\t"
			 "blr x9\n\t"
			 "brk #1\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9)
			 : "memory", "cc");
	return x0;
}

#else
#error "libsplit runs on x86-64 and arm64"
#endif

/* 16 bits for each thread, all of them as good as random though thread pointers lie in a regular pattern. */
static inline uint32_t sfs_thread_hash(void)
{
	const uint64_t h = ((unsigned long)sfs_self() >> 6) * SFS_HASH_FACTOR;

	return (uint32_t)((h ^ h >> 32) * SFS_HASH_FACTOR >> 48);
}

#endif
