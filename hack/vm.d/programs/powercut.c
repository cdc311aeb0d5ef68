/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker of the power cuts: does operations until the power goes, and says after each that it is done; or checks afterwards what
 * is there. The acknowledgements lie in memory that outlives the machine: one counter per worker.
 */
#include "powercut.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define ACKS_SIZE 4096

static const char usage[] =
	"Usage: powercut load DIR ACKS WORKER SEED [LIMIT]    operations in DIR, until killed or LIMIT are done\n"
	"       powercut check MODE DIR ACKS WORKER SEED      is there in DIR what MODE (posix, sync, strict) promises?\n"
	"       powercut load-exchange DIR ACKS WORKER SEED   two files in DIR exchange blocks, until killed\n"
	"       powercut check-exchange DIR ACKS WORKER SEED  are they as after one of the operations, and not too old a one?\n"
	"       powercut make-exchange DIR ACKS WORKER SEED N makes the two files as they are after N operations\n"
	"       powercut list SEED FROM TO                    the operations of a seed\n"
	"       powercut mark ACKS WORKER N                   set a counter\n"
	"ACKS is a file, or a device's memory, that holds the counter of WORKER (0 to 15) at offset 64 * WORKER.\n";

#define FAIL(...) (fprintf(stderr, "powercut: " __VA_ARGS__), fputc('\n', stderr), exit(1))

static volatile uint64_t *acks_open(const char *path, const char *worker)
{
	char *end;
	unsigned long w = strtoul(worker, &end, 10);
	int fd = open(path, O_RDWR);
	char *map;

	if (*end || w > 15)
		FAIL("a worker is a number from 0 to 15, not '%s'", worker);
	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	map = mmap(NULL, ACKS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		FAIL("mapping %s: %s", path, strerror(errno));
	close(fd);
	return (volatile uint64_t *)(map + 64 * w);
}

static int fds[SLOTS];

static const char *slot_name(int slot)
{
	static const char names[SLOTS][3] = {"f0", "f1", "f2", "f3", "f4", "f5"};

	return names[slot];
}

/* The system call of an operation. False when it did not do all of it. */
static bool perform(const struct op *op, const uint8_t *data)
{
	struct iovec iov[2] = {{(void *)(uintptr_t)data, op->split},
			       {(void *)(uintptr_t)(data + op->split), op->len - op->split}};
	int *fd = &fds[op->slot];
	ssize_t n = (ssize_t)op->len;

	switch (op->kind) {
	case CREATE:
		*fd = open(slot_name(op->slot), O_RDWR | O_CREAT | O_EXCL, 0644);
		return *fd >= 0;
	case APPEND:
		if (op->sequential)
			return lseek(*fd, 0, SEEK_END) == (off_t)op->off && write(*fd, data, op->len) == n;
		/* fallthrough */
	case OVERWRITE:
	case CROSS:
	case BEYOND:
		return pwrite(*fd, data, op->len, (off_t)op->off) == n;
	case APPENDV:
		return pwritev(*fd, iov, 2, (off_t)op->off) == n;
	case TRUNCATE:
		return ftruncate(*fd, (off_t)op->off) == 0;
	case SYNC:
		return (op->data_only ? fdatasync(*fd) : fsync(*fd)) == 0;
	case RENAME:
		if (rename(slot_name(op->slot), slot_name(op->to)) < 0)
			return false;
		if (fds[op->to] >= 0)
			close(fds[op->to]);
		fds[op->to] = *fd;
		*fd = -1;
		return true;
	case UNLINK:
		if (unlink(slot_name(op->slot)) < 0)
			return false;
		close(*fd);
		*fd = -1;
		return true;
	case REOPEN:
		if (close(*fd) < 0)
			return false;
		*fd = open(slot_name(op->slot), O_RDWR);
		return *fd >= 0;
	}
	return false;
}

static void enter(const char *dir)
{
	if (chdir(dir) < 0)
		FAIL("%s: %s", dir, strerror(errno));
}

static void load(const char *dir, volatile uint64_t *acked, uint64_t seed, uint64_t limit)
{
	static uint8_t data[2 << 20];
	struct model m;

	enter(dir);
	for (int i = 0; i < SLOTS; i++)
		fds[i] = -1;
	*acked = 0;
	model_init(&m, seed, false);
	while (m.ops < limit) {
		struct op op = model_next(&m);

		if (op.len > sizeof(data))
			FAIL("an operation of %zu bytes", op.len);
		for (size_t i = 0; i < op.len; i++)
			data[i] = model_byte(seed, m.ops, op.off + i);
		errno = 0;
		if (!perform(&op, data))
			FAIL("operation %" PRIu64 " (%s of f%d, offset %" PRIu64 ", %zu bytes): %s", m.ops, model_kind(op.kind),
			     op.slot, op.off, op.len, errno ? strerror(errno) : "less was done than asked for");
		*acked = m.ops + 1;
		model_apply(&m, &op);
	}
	model_free(&m);
}

static int check(const char *mode, const char *dir, uint64_t acked, uint64_t seed)
{
	bool good;

	if (strcmp(mode, "strict") == 0)
		good = oracle_strict(dir, seed, acked);
	else if (strcmp(mode, "sync") == 0)
		good = oracle_sync(dir, seed, acked);
	else if (strcmp(mode, "posix") == 0)
		good = oracle_posix(dir, seed, acked);
	else
		FAIL("unknown mode '%s'; known: posix, sync, strict", mode);
	if (good)
		printf("%s: all of what %s promises after %" PRIu64 " operations is there\n", dir, mode, acked);
	return good ? 0 : 1;
}

static void list(uint64_t seed, uint64_t from, uint64_t to)
{
	struct model m;

	model_init(&m, seed, false);
	while (m.ops < to) {
		struct op op = model_next(&m);

		if (m.ops >= from) {
			printf("%6" PRIu64 " %-9s f%d", m.ops, model_kind(op.kind), op.slot);
			if (op.kind == RENAME)
				printf(" to f%d", op.to);
			else if (op.kind == TRUNCATE)
				printf(" to %" PRIu64 " bytes", op.off);
			else if (op.kind == SYNC && op.data_only)
				printf(" (fdatasync)");
			else if (op.kind >= APPEND && op.kind <= BEYOND)
				printf(" at %" PRIu64 ", %zu bytes", op.off, op.len);
			printf("\n");
		}
		model_apply(&m, &op);
	}
	model_free(&m);
}

int main(int argc, char **argv)
{
	if ((argc == 6 || argc == 7) && strcmp(argv[1], "load") == 0) {
		load(argv[2], acks_open(argv[3], argv[4]), strtoull(argv[5], NULL, 0),
		     argc == 7 ? strtoull(argv[6], NULL, 0) : UINT64_MAX);
		return 0;
	}
	if (argc == 6 && strcmp(argv[1], "load-exchange") == 0) {
		volatile uint64_t *acked = acks_open(argv[3], argv[4]);

		enter(argv[2]);
		return exchange_load(acked, strtoull(argv[5], NULL, 0), UINT64_MAX, false) ? 0 : 1;
	}
	if (argc == 7 && strcmp(argv[1], "make-exchange") == 0) {
		volatile uint64_t *acked = acks_open(argv[3], argv[4]);

		enter(argv[2]);
		return exchange_load(acked, strtoull(argv[5], NULL, 0), strtoull(argv[6], NULL, 0), true) ? 0 : 1;
	}
	if (argc == 6 && strcmp(argv[1], "check-exchange") == 0) {
		volatile uint64_t *acked = acks_open(argv[3], argv[4]);

		enter(argv[2]);
		return exchange_check(strtoull(argv[5], NULL, 0), *acked) ? 0 : 1;
	}
	if (argc == 7 && strcmp(argv[1], "check") == 0)
		return check(argv[2], argv[3], *acks_open(argv[4], argv[5]), strtoull(argv[6], NULL, 0));
	if (argc == 5 && strcmp(argv[1], "list") == 0) {
		list(strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
		return 0;
	}
	if (argc == 5 && strcmp(argv[1], "mark") == 0) {
		*acks_open(argv[2], argv[3]) = strtoull(argv[4], NULL, 0);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	fputs(usage, stderr);
	return 2;
}
