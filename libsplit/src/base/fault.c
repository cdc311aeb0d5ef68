/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#include <string.h>

#include "base/arch.h"
#include "base/protect.h"
#include "base/sys.h"

#define SLOTS  1024u
#define PROBES 8u
#define DEPTH  (64ul << 10) /* bytes of stack that fn and what it calls may take */

#define FORGOTTEN_NS 10000000000 /* a fault at the same address after so long is another one */

/*
 * Which thread is inside, by a few slots that its thread pointer leads to: there is no thread-local storage for us. A thread that finds none
 * goes without; then a fault ends the process.
 */
static struct slot {
	void *self;
	struct sfs_fault *fault;
	uintptr_t again; /* where faults were met last, one after the other */
	int64_t since;	 /* and when that began, ns */
} slots[SLOTS + PROBES];

static struct slot *mine(void)
{
	struct slot *s = &slots[sfs_thread_hash() % SLOTS];
	void *self = sfs_self();

	for (unsigned i = 0; i < PROBES; i++)
		if (__atomic_load_n(&s[i].self, __ATOMIC_RELAXED) == self)
			return &s[i];
	return NULL;
}

static __attribute__((noinline)) struct slot *claim(void)
{
	struct slot *s = &slots[sfs_thread_hash() % SLOTS];

	for (unsigned i = 0; i < PROBES; i++) {
		void *nobody = NULL;

		if (__atomic_compare_exchange_n(&s[i].self, &nobody, sfs_self(), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return &s[i];
	}
	return NULL;
}

/*
 * A slot stays its thread's, so that only the first time needs a locked instruction. Of a thread that has ended it goes to the next one with the
 * same thread pointer, or to nobody.
 */
__attribute__((noinline)) bool sfs_try(void (*fn)(void *arg), void *arg, struct sfs_fault *f)
{
	struct sfs_fault *volatile keep = f;
	struct slot *volatile s = mine();

	f->sig = 0;
	if (__builtin_expect(!s, 0))
		s = claim();
	if (__builtin_expect(!s, 0)) {
		fn(arg);
		return true;
	}
	f->outer = s->fault;
	if (__builtin_expect(__builtin_setjmp(f->back), 0)) {
		s->fault = keep->outer;
		sfs_protect_enter(); /* it may have been in the middle of a store */
		return false;
	}
	__atomic_store_n(&s->fault, f, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	fn(arg);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	s->fault = keep->outer;
	return true;
}

struct piece {
	void *to;
	const void *from;
	size_t n;
};

static void copy(void *arg)
{
	const struct piece *p = arg;

	memcpy(p->to, p->from, p->n);
}

bool sfs_copy(void *to, const void *from, size_t n)
{
	struct piece p = {to, from, n};
	struct sfs_fault f;

	return sfs_try(copy, &p, &f);
}

#if defined(__x86_64__)
/*
 * One piece of assembler that knows all registers it uses: a fault in it goes on at its end, and nothing has to be noted beforehand. Sixteen
 * bytes at a time, the last ones once more.
 */
extern const char sfs_copy_short_begin[] __attribute__((visibility("hidden")));
extern const char sfs_copy_short_end[] __attribute__((visibility("hidden")));
extern const char sfs_copy_short_fault[] __attribute__((visibility("hidden")));

__attribute__((noinline, noclone)) bool sfs_copy_short(void *to, const void *from, size_t n)
{
	bool ok = true;

	__asm__ volatile(".globl sfs_copy_short_begin, sfs_copy_short_end, sfs_copy_short_fault\n"
			 ".hidden sfs_copy_short_begin, sfs_copy_short_end, sfs_copy_short_fault\n"
			 "sfs_copy_short_begin:\n\t"
			 "cmp $16, %[n]\n\t"
			 "jb 2f\n"
			 "1:\tmovups (%[from]), %%xmm0\n\t"
			 "movups %%xmm0, (%[to])\n\t"
			 "add $16, %[from]\n\t"
			 "add $16, %[to]\n\t"
			 "sub $16, %[n]\n\t"
			 "cmp $16, %[n]\n\t"
			 "jae 1b\n\t"
			 "test %[n], %[n]\n\t"
			 "jz 4f\n\t"
			 "movups -16(%[from], %[n]), %%xmm0\n\t"
			 "movups %%xmm0, -16(%[to], %[n])\n\t"
			 "jmp 4f\n"
			 "2:\ttest %[n], %[n]\n\t"
			 "jz 4f\n"
			 "3:\tmovb -1(%[from], %[n]), %b[byte]\n\t"
			 "movb %b[byte], -1(%[to], %[n])\n\t"
			 "dec %[n]\n\t"
			 "jnz 3b\n\t"
			 "jmp 4f\n"
			 "sfs_copy_short_end:\n"
			 "sfs_copy_short_fault:\n\t"
			 "movb $0, %b[ok]\n"
			 "4:"
			 : [to] "+r"(to), [from] "+r"(from), [n] "+r"(n), [ok] "+r"(ok), [byte] "=&r"((int){0})
			 :
			 : "xmm0", "memory", "cc");
	return ok;
}

static bool in_copy_short(ucontext_t *at)
{
	const uintptr_t pc = SFS_PC(&at->uc_mcontext);

	if (pc < (uintptr_t)sfs_copy_short_begin || pc >= (uintptr_t)sfs_copy_short_end)
		return false;
	at->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)sfs_copy_short_fault;
	return true;
}
#else
bool sfs_copy_short(void *to, const void *from, size_t n)
{
	return sfs_copy(to, from, n);
}

static bool in_copy_short(ucontext_t *at)
{
	(void)at;
	return false;
}
#endif

static void go_back(const struct sfs_fault *f, ucontext_t *at)
{
#if defined(__x86_64__)
	at->uc_mcontext.gregs[REG_RBP] = (greg_t)f->back[0];
	at->uc_mcontext.gregs[REG_RIP] = (greg_t)f->back[1];
	at->uc_mcontext.gregs[REG_RSP] = (greg_t)f->back[2];
#else
	at->uc_mcontext.regs[29] = (uintptr_t)f->back[0];
	at->uc_mcontext.pc = (uintptr_t)f->back[1];
	at->uc_mcontext.sp = (uintptr_t)f->back[2];
#endif
}

bool sfs_fault(int sig, const siginfo_t *info, ucontext_t *at)
{
	const struct slot *s = mine();
	struct sfs_fault *f = s ? s->fault : NULL;

	if (info->si_code > 0 && in_copy_short(at))
		return true;
	/* Sent by somebody; or what is left of a call that a handler has left by a jump, whose frame is below the stack now. */
	if (!f || info->si_code <= 0 || (uintptr_t)f - SFS_SP(&at->uc_mcontext) > DEPTH)
		return false;
	f->sig = sig;
	f->code = info->si_code;
	f->addr = (uintptr_t)info->si_addr;
	go_back(f, at);
	return true;
}

int64_t sfs_fault_lasts(uintptr_t addr)
{
	const int64_t now = sys_now_ns();
	struct slot *s = mine();

	if (!s)
		s = claim();
	if (!s)
		return INT64_MAX;
	if (s->again != addr || now - s->since > FORGOTTEN_NS) {
		s->again = addr;
		s->since = now;
	}
	return now - s->since;
}

void sfs_faults_forget(void)
{
	struct slot *s = mine();
	struct slot kept = s ? *s : (struct slot){0};

	memset(slots, 0, sizeof(slots));
	if (s)
		*s = kept;
}
