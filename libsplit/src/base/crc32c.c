/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C. The crc32 instruction has a latency of three cycles and a throughput of one per cycle, so long buffers are cut into
 * three lanes that run side by side. A lane's CRC is carried past the lanes behind it by multiplying with x^(8n) modulo the
 * polynomial: one carry-less multiplication by x^(8n-33), reduced by the crc32 instruction itself (which multiplies by x^32;
 * the missing one comes from the bit-reflected product).
 */
#include "base/crc32c.h"

#include <nmmintrin.h>
#include <wmmintrin.h>

#include "base/cpu.h"

/* CRC of the 16 half-bytes, reflected polynomial 0x82f63b78. */
static const uint32_t nibble[16] = {
	0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
	0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

typedef uint64_t u64_any __attribute__((aligned(1), may_alias));
typedef uint32_t u32_any __attribute__((aligned(1), may_alias));

uint32_t crc32c_table(uint32_t crc, const void *data, size_t n)
{
	const uint8_t *p = data;

	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		crc = crc >> 4 ^ nibble[crc & 15];
		crc = crc >> 4 ^ nibble[crc & 15];
	}
	return ~crc;
}

__attribute__((target("sse4.2"))) static inline uint32_t one_lane(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t c = crc;

	for (; n >= 8; n -= 8, p += 8)
		c = _mm_crc32_u64(c, *(const u64_any *)p);
	crc = (uint32_t)c;
	if (n & 4) {
		crc = _mm_crc32_u32(crc, *(const u32_any *)p);
		p += 4;
	}
	for (n &= 3; n; n--)
		crc = _mm_crc32_u8(crc, *p++);
	return crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const void *data, size_t n)
{
	return ~one_lane(~crc, data, n);
}

struct lanes {
	size_t len;   /* bytes of a lane, a multiple of 8 */
	uint32_t by2; /* x^(8 * 2 * len - 33) mod P */
	uint32_t by1; /* x^(8 * len - 33) mod P */
};

/* 3 * 1360 + 16 is a page. */
static const struct lanes lanes[] = {
	{1360, 0x5aa1f3cf, 0x3f70cc6f},
	{336, 0xcec3662e, 0xa60ce07b},
	{80, 0x878a92a7, 0x39d3b296},
};

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t carry(uint64_t crc, uint32_t by)
{
	__m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)by), 0);

	return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_sse42_lanes(uint32_t crc, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t a = (uint32_t)~crc, b, c;

	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		size_t len = lanes[i].len;

		for (; n >= 3 * len; n -= 3 * len, p += 3 * len) {
			b = c = 0;
			for (size_t k = 0; k < len; k += 8) {
				a = _mm_crc32_u64(a, *(const u64_any *)(p + k));
				b = _mm_crc32_u64(b, *(const u64_any *)(p + len + k));
				c = _mm_crc32_u64(c, *(const u64_any *)(p + 2 * len + k));
			}
			a = carry(a, lanes[i].by2) ^ carry(b, lanes[i].by1) ^ c;
		}
	}
	return ~one_lane((uint32_t)a, p, n);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
	uint32_t cpu = sfs_cpu();

	if (__builtin_expect(!(cpu & SFS_CPU_SSE42), 0))
		return crc32c_table(crc, data, n);
	if (n < 240 || !(cpu & SFS_CPU_PCLMUL))
		return crc_sse42(crc, data, n);
	return crc_sse42_lanes(crc, data, n);
}
