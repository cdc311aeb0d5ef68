/* SPDX-License-Identifier: Apache-2.0 */
#include "copies.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE	 4096u
#define READ_MAX 0x7ffff000ul /* bytes that one pread(2) can give, which is what is of one moment */
#define COPIES	 4096u

/* p: NULL: a free place; `taken`: somebody fills it. */
static struct copy {
	_Atomic(const void *) p;
	size_t bytes; /* of the mapping */
} copies[COPIES];
static const char taken[1];
static const char empty[1];
static atomic_uint empties;

/* Addresses look for their place from here on. */
static unsigned first_of(const void *p)
{
	return (unsigned)(((uintptr_t)p / PAGE * 0x9e3779b97f4a7c15ull) >> 40) % COPIES;
}

const void *splitfs_copy_empty(void)
{
	atomic_fetch_add(&empties, 1);
	return empty;
}

/* False: there are too many. */
static int enter(const void *p, size_t bytes)
{
	for (unsigned i = 0, at = first_of(p); i < COPIES; i++, at = (at + 1) % COPIES) {
		const void *none = NULL;

		if (atomic_load_explicit(&copies[at].p, memory_order_relaxed) == NULL &&
		    atomic_compare_exchange_strong(&copies[at].p, &none, taken)) {
			copies[at].bytes = bytes;
			atomic_store(&copies[at].p, p);
			return 1;
		}
	}
	return 0;
}

/*
 * How many bytes a copy needs room for: no more than the file has, where it has a size. That of files in /proc is 0, and others may have grown
 * when they are read, so it is a page at least.
 */
static int room(int fd, off_t off, size_t len, size_t *n)
{
	struct stat st;
	size_t left;

	if (fstat(fd, &st) < 0)
		return -1;
	*n = len < READ_MAX ? len : READ_MAX;
	left = st.st_size > off ? (size_t)(st.st_size - off) : 0;
	left = left > PAGE ? left : PAGE;
	if (S_ISREG(st.st_mode) && left < *n)
		*n = left;
	if (*n > (size_t)(SSIZE_MAX - off))
		*n = (size_t)(SSIZE_MAX - off);
	return 0;
}

const void *splitfs_copy_peek(int fd, off_t off, size_t len, size_t *got)
{
	const size_t in_page = (size_t)off % PAGE;
	size_t n, bytes;
	ssize_t r;
	char *p;
	int err;

	if (room(fd, off, len, &n) < 0)
		return NULL;
	/* One byte more, so that there is something to read into: the size may be another one by now. */
	bytes = (in_page + n + PAGE) / PAGE * PAGE;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	r = pread(fd, p + in_page, n, off);
	if (r <= 0 || mprotect(p, bytes, PROT_READ) < 0) {
		err = errno;
		munmap(p, bytes);
		*got = 0;
		errno = err;
		return r == 0 ? splitfs_copy_empty() : NULL;
	}
	if (!enter(p + in_page, bytes)) {
		munmap(p, bytes);
		errno = ENOSPC;
		return NULL;
	}
	*got = (size_t)r;
	return p + in_page;
}

static int unpeek_empty(void)
{
	unsigned n = atomic_load(&empties);

	while (n > 0 && !atomic_compare_exchange_weak(&empties, &n, n - 1))
		;
	return n > 0 ? 0 : -1;
}

int splitfs_copy_unpeek(const void *p)
{
	if (p == empty && unpeek_empty() == 0)
		return 0;
	for (unsigned i = 0, at = first_of(p); p && p != empty && p != taken && i < COPIES; i++, at = (at + 1) % COPIES) {
		const void *it = atomic_load_explicit(&copies[at].p, memory_order_relaxed);
		size_t bytes;

		if (it != p || !atomic_compare_exchange_strong(&copies[at].p, &it, taken))
			continue;
		bytes = copies[at].bytes;
		atomic_store(&copies[at].p, NULL);
		return munmap((char *)p - (uintptr_t)p % PAGE, bytes);
	}
	errno = EINVAL;
	return -1;
}
