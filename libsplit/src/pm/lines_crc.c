/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying and checksumming in one pass. Memory limits non-temporal stores, so the multiplications beside them cost nothing.
 *
 * The bytes are a polynomial; 128 of them are held in four vectors of two lanes of 16 bytes. A lane is carried past the next D bits by
 * multiplying its halves with x^(D+63) and x^(D-1) modulo the polynomial of CRC32C (both bit-reflected, and one degree less than D+64 and D,
 * because the product of two reflected words comes out shifted by one). At the end the lanes are carried onto the last one, and
 * the crc32 instruction reduces that.
 */
#include "pm/lines_crc.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define WITH_VCLMUL __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))

/* x^(D+63), x^(D-1) for D = 1024, 512, 128. */
static const uint64_t by1024[2] = {0x6577b24500000000, 0x7417153f00000000};
static const uint64_t by512[2] = {0x1c19243b00000000, 0x75bba45b00000000};
static const uint64_t by128[2] = {0x3743f7bd00000000, 0x3171d43000000000};

WITH_VCLMUL static inline __m128i factors(const uint64_t by[2])
{
	return _mm_loadu_si128((const __m128i *)by);
}

/* Each byte is loaded once: what is stored is what is summed, even if another thread changes the source meanwhile. */
WITH_VCLMUL static inline __m256i store(__m256i *to, const __m256i_u *from)
{
	const __m256i v = _mm256_loadu_si256(from);

	_mm256_stream_si256(to, v);
	return v;
}

WITH_VCLMUL static inline __m256i carry2(__m256i v, __m256i by, __m256i next)
{
	return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(v, by, 0x00), next),
				_mm256_clmulepi64_epi128(v, by, 0x11));
}

WITH_VCLMUL static inline __m128i carry1(__m128i v, __m128i by, __m128i next)
{
	return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), next), _mm_clmulepi64_si128(v, by, 0x11));
}

WITH_VCLMUL uint32_t pm_lines_crc(uint32_t crc, char *dst, const char *src, size_t n)
{
	const __m256i by8 = _mm256_broadcastsi128_si256(factors(by1024)), by4 = _mm256_broadcastsi128_si256(factors(by512));
	const __m128i by1 = factors(by128);
	const __m256i_u *from = (const __m256i_u *)src;
	__m256i *to = (__m256i *)dst;
	__m256i s0, s1, s2, s3; /* sums; named, because the compiler would keep an array in memory */
	__m128i last;

	s0 = store(to, from), s1 = store(to + 1, from + 1), s2 = store(to + 2, from + 2), s3 = store(to + 3, from + 3);
	s0 = _mm256_xor_si256(s0, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
	while (n -= PM_LINES_CRC) {
		from += 4, to += 4;
		s0 = carry2(s0, by8, store(to, from));
		s1 = carry2(s1, by8, store(to + 1, from + 1));
		s2 = carry2(s2, by8, store(to + 2, from + 2));
		s3 = carry2(s3, by8, store(to + 3, from + 3));
	}
	s2 = carry2(s0, by4, s2);
	s3 = carry2(s1, by4, s3);
	last = carry1(_mm256_castsi256_si128(s2), by1, _mm256_extracti128_si256(s2, 1));
	last = carry1(last, by1, _mm256_castsi256_si128(s3));
	last = carry1(last, by1, _mm256_extracti128_si256(s3, 1));
	crc = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last)),
				      (uint64_t)_mm_extract_epi64(last, 1));
	/* The program's own SSE code would otherwise wait for the upper halves. */
	_mm256_zeroupper();
	return ~crc;
}

#else

/* arm64 stores go through the caches, and writing back is what takes the time. */
uint32_t pm_lines_crc(uint32_t crc, char *dst, const char *src, size_t n)
{
	(void)dst, (void)src, (void)n;
	return crc;
}

#endif
