/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a file of base64, without line breaks, into another one: what SubZero's paper shows peek and patch by.
 *
 *   decode INPUT OUTPUT
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CODED = 4 << 20, PLAIN = CODED / 4 * 3 }; /* bytes of a piece; PLAIN is whole blocks */
#define WRONG 0x80000000u

/* For each place of a group of four characters: the bits that a character has there, in the order of memory. */
static uint32_t bits[4][256];

static void prepare(void)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	memset(bits, 0xff, sizeof(bits));
	for (uint32_t v = 0; v < 64; v++)
		for (int place = 0; place < 4; place++) {
			const uint32_t all = v << (18 - 6 * place);

			bits[place][(uint8_t)alphabet[v]] = all >> 16 | (all & 0xff00) | (all & 0xff) << 16;
		}
}

/* The last group may end with one or two '='. How many bytes come of `n` characters; more than that many may be stored. */
static size_t decode(const uint8_t *from, size_t n, uint8_t *to)
{
	const uint8_t *end = from + n;
	uint8_t *const begin = to;
	uint32_t group, wrong = 0;

	for (; end - from > 4; from += 4, to += 3) {
		group = bits[0][from[0]] | bits[1][from[1]] | bits[2][from[2]] | bits[3][from[3]];
		wrong |= group;
		memcpy(to, &group, 4); /* one byte more than it has, which the next group overwrites */
	}
	if (end - from == 4) {
		const int fill = (from[3] == '=') + (from[3] == '=' && from[2] == '=');
		const uint8_t last[4] = {from[0], from[1], fill > 1 ? 'A' : from[2], fill > 0 ? 'A' : from[3]};

		group = bits[0][last[0]] | bits[1][last[1]] | bits[2][last[2]] | bits[3][last[3]];
		wrong |= group;
		memcpy(to, &group, 3);
		to += 3 - fill;
	} else if (n > 0) {
		wrong = WRONG;
	}
	if (wrong & WRONG)
		errx(1, "this is not base64");
	return (size_t)(to - begin);
}

static size_t read_all(int fd, uint8_t *to, size_t n)
{
	size_t done = 0;
	ssize_t r;

	do {
		r = read(fd, to + done, n - done);
		done += r > 0 ? (size_t)r : 0;
	} while ((r > 0 && done < n) || (r < 0 && errno == EINTR));
	if (r < 0)
		err(1, "read");
	return done;
}

static void write_all(int fd, const uint8_t *from, size_t n)
{
	while (n > 0) {
		const ssize_t r = write(fd, from, n);

		if (r < 0 && errno != EINTR)
			err(1, "write");
		from += r > 0 ? r : 0;
		n -= r > 0 ? (size_t)r : 0;
	}
}

static void decode_file(int in, int out)
{
	uint8_t *coded = malloc(CODED), *plain = malloc(PLAIN);
	size_t n;

	if (!coded || !plain)
		err(1, "malloc");
	while ((n = read_all(in, coded, CODED)) > 0)
		write_all(out, plain, decode(coded, n, plain));
	free(coded);
	free(plain);
}

int main(int argc, char **argv)
{
	int in, out;

	if (argc != 3)
		errx(2, "usage: decode INPUT OUTPUT");
	in = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (in < 0)
		err(1, "%s", argv[1]);
	out = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (out < 0)
		err(1, "%s", argv[2]);
	prepare();
	decode_file(in, out);
	if (fsync(out) < 0 || close(out) < 0)
		err(1, "%s", argv[2]);
	return 0;
}
