/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plainest application that promises something: it appends records to a log and overwrites slots in a second file, and says
 * on standard output what has returned. It never stops by itself; test_kills kills it and reads what is there.
 *
 *   log_writer DIR SEED NEXT     NEXT: the number of the first record or overwrite
 *
 * Record: number, length, then bytes that both determine. Slot: one number, all over it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOTS	   8
#define SLOT_BYTES 12000 /* over three or four blocks, from an odd place on */
#define SLOT_STEP  16484
#define RECORD_MAX 100000

static uint64_t rng;

static uint32_t below(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 33) % n;
}

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void say(const char *what, uint32_t number)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "%s %u\n", what, number);

	must(write(STDOUT_FILENO, line, (size_t)n) == n, "report");
}

static void append(int fd, uint32_t number)
{
	static unsigned char buf[RECORD_MAX];
	const uint32_t kind = below(20), len = kind == 0  ? 1 + below(RECORD_MAX - 1)
					       : kind < 4 ? 1 + below(6000)
							  : 1 + below(300);
	const uint32_t head[2] = {number, len};
	const struct iovec iov[3] = {{(void *)head, sizeof(head)}, {buf, len / 2}, {buf + len / 2, len - len / 2}};

	for (uint32_t i = 0; i < len; i++)
		buf[i] = (unsigned char)(number * 31 + i * 7 + (i >> 8));
	must(writev(fd, iov, 3) == (ssize_t)(sizeof(head) + len), "append");
	if (below(50) == 0)
		must(fsync(fd) == 0, "fsync");
	say("append", number);
}

static void overwrite(int fd, uint32_t number)
{
	uint32_t words[SLOT_BYTES / 4];

	for (size_t i = 0; i < SLOT_BYTES / 4; i++)
		words[i] = number;
	must(pwrite(fd, words, SLOT_BYTES, (off_t)(number % SLOTS) * SLOT_STEP + 100) == SLOT_BYTES, "overwrite");
	say("overwrite", number);
}

int main(int argc, char **argv)
{
	int log, slots;

	must(argc == 4 && chdir(argv[1]) == 0, "log_writer DIR SEED NEXT");
	rng = strtoull(argv[2], NULL, 0) * 2 + 1;
	log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
	slots = open("slots", O_RDWR | O_CREAT, 0644);
	must(log >= 0 && slots >= 0, "open");
	say("pid", (uint32_t)getpid());
	for (uint32_t number = (uint32_t)strtoul(argv[3], NULL, 0);; number++) {
		if (below(4) == 0)
			overwrite(slots, number);
		else
			append(log, number);
	}
}
