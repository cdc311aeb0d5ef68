/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protection against stray stores of the program, by protection keys (x86: PKU). Windows, staging files and the log are mapped under a key
 * that forbids stores; who stores to them by right (pm/pm.c) opens it around the stores, for its own thread.
 *
 *   state of a thread   what is true                                       goes on as
 *   CLOSED              loads alone                                        OPEN around stores of pm.c
 *   OPEN                loads and stores                                   CLOSED; where a fault ends the copy, by sfs_try()
 *   BARRED              nothing: the kernel begins every signal handler    CLOSED when the handler calls us; its end brings back
 *                       so, and a thread older than the key is so          what the interrupted code had
 *
 * A thread begins as the one that makes it. On other processors, and where nobody asks for it, there is no key and nothing is done.
 */
#ifndef SFS_PROTECT_H
#define SFS_PROTECT_H

#include <stdbool.h>
#include <stdint.h>

/* The rights of the key in the register, two bits from here on; 0: there is no key. */
extern uint32_t sfs_protect_shift __attribute__((visibility("hidden")));

static inline bool sfs_protect_on(void)
{
	return __builtin_expect(sfs_protect_shift != 0, 0);
}

/* From now on, in this process. False: this processor or kernel has no keys, or none is left. */
bool sfs_protect_start(void);
/* Could it be? Changes nothing. */
bool sfs_protect_possible(void);
/* Whole pages, mapped with `prot`, get the key, or lose it: memory that the program may store to. 0, or a negative errno value. */
int sfs_protect(void *p, uint64_t n, int prot);
int sfs_unprotect(void *p, uint64_t n, int prot);

#if defined(__x86_64__)

#define SFS_KEY_BITS   3u
#define SFS_KEY_CLOSED 2u /* PKEY_DISABLE_WRITE */

static inline uint32_t sfs_key_read(void)
{
	uint32_t rights, none;

	__asm__ volatile(".byte 0x0f, 0x01, 0xee" /* rdpkru */ : "=a"(rights), "=d"(none) : "c"(0));
	return rights;
}

static inline void sfs_key_write(uint32_t rights)
{
	__asm__ volatile(".byte 0x0f, 0x01, 0xef" /* wrpkru */ : : "a"(rights), "c"(0), "d"(0) : "memory");
}

/* What they say of the key. */
static inline uint32_t sfs_key_bits(uint32_t rights)
{
	return rights >> sfs_protect_shift & SFS_KEY_BITS;
}

/*
 * Open for this thread's stores; returns what sfs_protect_close() puts back. Writing the register takes some 25 ns, reading it one: where it is
 * open already nothing is written, so several stores may be put between one pair.
 */
static inline uint32_t sfs_protect_open(void)
{
	uint32_t rights;

	if (__builtin_expect(!sfs_protect_shift, 1))
		return 0;
	rights = sfs_key_read();
	if (sfs_key_bits(rights))
		sfs_key_write(rights & ~(SFS_KEY_BITS << sfs_protect_shift));
	return rights;
}

static inline void sfs_protect_close(uint32_t rights)
{
	if (__builtin_expect(sfs_protect_shift, 0) && sfs_key_bits(rights))
		sfs_key_write(rights);
}

/* To CLOSED from whatever it is. */
static inline void sfs_protect_enter(void)
{
	uint32_t rights;

	if (__builtin_expect(!sfs_protect_shift, 1))
		return;
	rights = sfs_key_read();
	if (__builtin_expect(sfs_key_bits(rights) != SFS_KEY_CLOSED, 0))
		sfs_key_write((rights & ~(SFS_KEY_BITS << sfs_protect_shift)) | SFS_KEY_CLOSED << sfs_protect_shift);
}

#else

static inline uint32_t sfs_protect_open(void)
{
	return 0;
}

static inline void sfs_protect_close(uint32_t rights)
{
	(void)rights;
}

static inline void sfs_protect_enter(void)
{
}

#endif

#endif
