/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: published check values, and the three implementations against each other at all sizes and splits. */
#include "base/crc32c.h"

#include "base/cpu.h"
#include "harness.h"

int main(void)
{
	static unsigned char buf[20000];
	uint64_t rnd = test_seed(2);
	uint32_t cpu = sfs_cpu();
	size_t n, off, cut;
	uint32_t crc, seed;

	/* The check value of the polynomial, and the examples of RFC 3720 appendix B.4. */
	CHECK_EQ(crc32c(0, "123456789", 9), 0xe3069283);
	CHECK_EQ(crc32c_table(0, "123456789", 9), 0xe3069283);
	CHECK_EQ(crc32c(0, buf, 32), 0x8a9136aa);
	memset(buf, 0xff, 32);
	CHECK_EQ(crc32c(0, buf, 32), 0x62a8ab43);
	for (n = 0; n < 32; n++)
		buf[n] = (unsigned char)n;
	CHECK_EQ(crc32c(0, buf, 32), 0x46dd794e);
	CHECK_EQ(crc32c(0x12345678, buf, 0), 0x12345678);

	test_fill(&rnd, buf, sizeof(buf));
	for (int i = 0; i < 6000; i++) {
		n = i < 4300 ? (size_t)i : test_below(&rnd, 15000);
		off = test_below(&rnd, 64);
		seed = (uint32_t)test_random(&rnd);
		cut = test_below(&rnd, n + 1);
		sfs_cpu_cache = cpu;
		crc = crc32c(seed, buf + off, n);
		CHECK_EQ(crc32c(crc32c(seed, buf + off, cut), buf + off + cut, n - cut), crc);
		CHECK_EQ(crc32c_table(seed, buf + off, n), crc);
		sfs_cpu_cache = SFS_CPU_KNOWN | (cpu & SFS_CPU_CRC32C);
		CHECK_EQ(crc32c(seed, buf + off, n), crc);
		sfs_cpu_cache = SFS_CPU_KNOWN;
		CHECK_EQ(crc32c(seed, buf + off, n), crc);
	}
	return 0;
}
