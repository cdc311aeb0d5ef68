/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcpy, memmove, memset, memcmp and strlen of the preloaded object, which cannot use the C library's. Reads
 * are served by memcpy, so it has to keep up with that one: for pages the x86 processor's own string move, which starts the next
 * line early where the source comes from memory; otherwise 16-byte vectors, overlapping at the ends.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

void *memcpy(void *restrict dst, const void *restrict src, size_t n);
void *memmove(void *dst, const void *src, size_t n);
void *memset(void *dst, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);

typedef uint64_t u64_any __attribute__((aligned(1), may_alias));
typedef uint32_t u32_any __attribute__((aligned(1), may_alias));
typedef uint16_t u16_any __attribute__((aligned(1), may_alias));

typedef uint8_t v16 __attribute__((vector_size(16)));
typedef v16 v16_any __attribute__((aligned(1), may_alias));

#define REP_MIN	    2048u /* string moves take a while to start */
#define LOAD(p)	    (*(const v16_any *)(p))
#define STORE(p, v) (*(v16_any *)(p) = (v))

/* Up to 32 bytes: first and last part, which may overlap. All loads come before the stores, so memmove can use it. */
static inline void move_small(char *d, const char *s, size_t n)
{
	if (n >= 16) {
		v16 a = LOAD(s), b = LOAD(s + n - 16);

		STORE(d, a);
		STORE(d + n - 16, b);
	} else if (n >= 8) {
		uint64_t a = *(const u64_any *)s, b = *(const u64_any *)(s + n - 8);

		*(u64_any *)d = a;
		*(u64_any *)(d + n - 8) = b;
	} else if (n >= 4) {
		uint32_t a = *(const u32_any *)s, b = *(const u32_any *)(s + n - 4);

		*(u32_any *)d = a;
		*(u32_any *)(d + n - 4) = b;
	} else if (n >= 2) {
		uint16_t a = *(const u16_any *)s, b = *(const u16_any *)(s + n - 2);

		*(u16_any *)d = a;
		*(u16_any *)(d + n - 2) = b;
	} else if (n) {
		*d = *s;
	}
}

/* n > 32, forward; correct for overlapping ranges with d < s. */
static void copy_vectors(char *d, const char *s, size_t n)
{
	v16 last0 = LOAD(s + n - 32), last1 = LOAD(s + n - 16);
	char *last = d + n - 32;

	for (; n > 64; n -= 64, d += 64, s += 64) {
		v16 a = LOAD(s), b = LOAD(s + 16), c = LOAD(s + 32), e = LOAD(s + 48);

		STORE(d, a);
		STORE(d + 16, b);
		STORE(d + 32, c);
		STORE(d + 48, e);
	}
	if (n > 32) {
		v16 a = LOAD(s), b = LOAD(s + 16);

		STORE(d, a);
		STORE(d + 16, b);
	}
	STORE(last, last0);
	STORE(last + 16, last1);
}

void *memcpy(void *restrict dst, const void *restrict src, size_t n)
{
	if (n <= 32) {
		move_small(dst, src, n);
#if defined(__x86_64__)
	} else if (n >= REP_MIN && (sfs_cpu() & SFS_CPU_ERMS)) {
		void *d = dst;

		__asm__ volatile("rep movsb" : "+D"(d), "+S"(src), "+c"(n) : : "memory");
#endif
	} else {
		copy_vectors(dst, src, n);
	}
	return dst;
}

void *memmove(void *dst, const void *src, size_t n)
{
	char *d = dst;
	const char *s = src;

	if (n <= 32)
		move_small(d, s, n);
	else if ((uintptr_t)d - (uintptr_t)s >= n && (uintptr_t)s - (uintptr_t)d >= n)
		memcpy(d, s, n);
	else if (d < s)
		copy_vectors(d, s, n);
	else {
		v16 first0 = LOAD(s), first1 = LOAD(s + 16);

		while (n > 32) {
			v16 a = LOAD(s + n - 16), b = LOAD(s + n - 32);

			n -= 32;
			STORE(d + n + 16, a);
			STORE(d + n, b);
		}
		STORE(d, first0);
		STORE(d + 16, first1);
	}
	return dst;
}

void *memset(void *dst, int byte, size_t n)
{
	char *d = dst;
	v16 v = (v16){} + (uint8_t)byte;

	if (n < 16) {
		while (n)
			*(volatile char *)(d + --n) = (char)byte;
		return dst;
	}
	for (size_t i = 0; i + 16 <= n; i += 16)
		STORE(d + i, v);
	STORE(d + n - 16, v);
	return dst;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;

	for (; n >= 8; n -= 8, x += 8, y += 8)
		if (*(const u64_any *)x != *(const u64_any *)y)
			break;
	for (; n; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}
