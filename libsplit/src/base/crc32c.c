/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C. The crc32 instruction has a latency of two or three cycles and a throughput of one per cycle, so long buffers are cut into
 * three lanes that run side by side. A lane's CRC is carried past the lanes behind it by multiplying with x^(8n) modulo the
 * polynomial: one carry-less multiplication by x^(8n-33), reduced by the crc32 instruction itself (which multiplies by x^32;
 * the missing one comes from the bit-reflected product).
 */
#include "base/crc32c.h"

#include "base/cpu.h"

/* The same four operations on both architectures: CRC of a word, half a word and a byte; the low half of a carry-less product. */
#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#define WITH_CRC	__attribute__((target("sse4.2")))
#define WITH_CLMUL	__attribute__((target("sse4.2,pclmul")))
#define CRC_8(crc, v)	_mm_crc32_u64(crc, v)
#define CRC_4(crc, v)	_mm_crc32_u32(crc, v)
#define CRC_1(crc, v)	_mm_crc32_u8(crc, v)
#define CLMUL_LOW(a, b) _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(b), 0))
#else
#include <arm_acle.h>
#include <arm_neon.h>
#define WITH_CRC	__attribute__((target("+crc")))
#define WITH_CLMUL	__attribute__((target("+crc+crypto")))
#define CRC_8(crc, v)	__crc32cd((uint32_t)(crc), v)
#define CRC_4(crc, v)	__crc32cw(crc, v)
#define CRC_1(crc, v)	__crc32cb(crc, v)
#define CLMUL_LOW(a, b) vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)(a), (poly64_t)(b))), 0)
#endif

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

WITH_CRC static inline uint32_t one_lane(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t c = crc;

	for (; n >= 8; n -= 8, p += 8)
		c = CRC_8(c, *(const u64_any *)p);
	crc = (uint32_t)c;
	if (n & 4) {
		crc = CRC_4(crc, *(const u32_any *)p);
		p += 4;
	}
	for (n &= 3; n; n--)
		crc = CRC_1(crc, *p++);
	return crc;
}

WITH_CRC static uint32_t crc_one(uint32_t crc, const void *data, size_t n)
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

WITH_CLMUL static inline uint64_t carry(uint64_t crc, uint32_t by)
{
	return CRC_8(0, (uint64_t)CLMUL_LOW((long long)crc, (long long)by));
}

WITH_CLMUL static uint32_t crc_lanes(uint32_t crc, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t a = (uint32_t)~crc, b, c;

	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		size_t len = lanes[i].len;

		for (; n >= 3 * len; n -= 3 * len, p += 3 * len) {
			b = c = 0;
			for (size_t k = 0; k < len; k += 8) {
				a = CRC_8(a, *(const u64_any *)(p + k));
				b = CRC_8(b, *(const u64_any *)(p + len + k));
				c = CRC_8(c, *(const u64_any *)(p + 2 * len + k));
			}
			a = carry(a, lanes[i].by2) ^ carry(b, lanes[i].by1) ^ c;
		}
	}
	return ~one_lane((uint32_t)a, p, n);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
	uint32_t cpu = sfs_cpu();

	if (__builtin_expect(!(cpu & SFS_CPU_CRC32C), 0))
		return crc32c_table(crc, data, n);
	if (n < 240 || !(cpu & SFS_CPU_CLMUL))
		return crc_one(crc, data, n);
	return crc_lanes(crc, data, n);
}
