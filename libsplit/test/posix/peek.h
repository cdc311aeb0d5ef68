/* SPDX-License-Identifier: Apache-2.0 */
/* For programs of splitfs.h. On the plain kernel, and where the library can't do without, snapshots are copies. */
#ifndef SFS_TEST_POSIX_PEEK_H
#define SFS_TEST_POSIX_PEEK_H

#include <limits.h>
#include <setjmp.h>
#include <signal.h>

#include "check.h"
#include "splitfs.h"

#define BLOCK 4096

/* Is there a volume below us? */
static inline int served(void)
{
	return getenv("SPLITFS_CONFIG") != NULL;
}

/* Does the address lie in a mapping of the file behind fd? */
static inline int in_file(const void *p, int fd)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to, ino;
	struct stat st;
	char line[512];
	int found = 0;

	CHECK(maps && fstat(fd, &st) == 0);
	while (!found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &ino) == 3 && (unsigned long)p >= from &&
			(unsigned long)p < to && ino == st.st_ino;
	CHECK(fclose(maps) == 0);
	return found;
}

/* The n bytes at p are those that pattern `seed` has at off. */
static inline void expect_snapshot(const void *p, unsigned seed, off_t off, size_t n)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < n; i++)
		if (b[i] != byte_at(seed, (uint64_t)off + i)) {
			fprintf(stderr, "byte %zu of the snapshot of %lld: %02x instead of %02x\n", i, (long long)off, b[i],
				byte_at(seed, (uint64_t)off + i));
			_exit(1);
		}
}

/* A snapshot of pattern `seed` at [off, off + n), all of which is there. */
static inline const void *snapshot(int fd, unsigned seed, off_t off, size_t n)
{
	size_t got = 0;
	const void *p = splitfs_peek(fd, off, n, &got);

	CHECK(p && got == n);
	expect_snapshot(p, seed, off, n);
	return p;
}

static sigjmp_buf peek_back;

static inline void peek_on_fault(int sig)
{
	siglongjmp(peek_back, sig);
}

/* The signal that a store to p raises, or 0. */
static inline int store_faults(const void *p)
{
	struct sigaction act = {.sa_handler = peek_on_fault}, old;
	int sig;

	CHECK(sigaction(SIGSEGV, &act, &old) == 0);
	sig = sigsetjmp(peek_back, 1);
	if (sig == 0)
		*(volatile char *)p = 1;
	CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
	return sig;
}

#endif
