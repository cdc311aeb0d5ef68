/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that may fail. A buffer of the program may be no memory, and a page of persistent memory may be poisoned: the kernel's calls say
 * EFAULT and EIO then. What is done inside sfs_try() ends at such a fault, and sfs_try() says so. Nothing is held meanwhile, so there is
 * nothing to be undone but what `fn` has done itself.
 *
 * Whoever owns the process's signal handlers (preload/signals.c) calls sfs_fault() first when SIGSEGV or SIGBUS comes. Where nobody does, a
 * fault ends the process, as in any function that copies memory.
 */
#ifndef SFS_FAULT_H
#define SFS_FAULT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

struct sfs_fault {
	int sig;	/* 0, or SIGSEGV or SIGBUS */
	int code;	/* si_code */
	uintptr_t addr; /* what could not be read or stored to */
	void *back[5];	/* where to go on: frame, place and stack, as __builtin_setjmp() leaves them */
	struct sfs_fault *outer;
};

/*
 * Call fn(arg). False: a fault ended it, and *f says which. fn must leave everything usable at any moment: it takes no lock and makes no
 * state of ours wrong. Any thread, also in a signal handler; calls lie within each other where a handler interrupts one.
 */
bool sfs_try(void (*fn)(void *arg), void *arg, struct sfs_fault *f);
/* memcpy() where one side may be no memory. False: it is none, and some of it may have been copied. */
bool sfs_copy(void *to, const void *from, size_t n);
/* The same of a short piece, for less. */
bool sfs_copy_short(void *to, const void *from, size_t n);
/*
 * In the handler of SIGSEGV or SIGBUS. True: it came inside sfs_try(), which goes on when the handler returns. False: it is not ours.
 */
bool sfs_fault(int sig, const siginfo_t *info, ucontext_t *at);
/* In the handler: for so long, in ns, this thread has met faults at this address and at no other. */
int64_t sfs_fault_lasts(uintptr_t addr);
/* In the child of a fork: the other threads are gone. */
void sfs_faults_forget(void);

/* Did the fault hit one of these n bytes? */
static inline bool sfs_fault_in(const struct sfs_fault *f, const void *p, size_t n)
{
	return f->addr - (uintptr_t)p < n;
}

#endif
