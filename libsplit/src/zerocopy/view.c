/* SPDX-License-Identifier: Apache-2.0 */
#include "zerocopy/view.h"

#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "pm/map.h"

#define PAGE	 4096ull
#define VIEW_MIN (2ull << 20)
#define BITS	 64u

int sfs_view_map(struct sfs_view *v, int fd, uint64_t need)
{
	uint64_t len = VIEW_MIN;
	void *p;
	int r;

	while (len < need * 2)
		len *= 2;
	p = sys_mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	if (sys_is_err(p)) {
		len = (need + PAGE - 1) / PAGE * PAGE;
		p = sys_mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	}
	if (sys_is_err(p))
		return (int)(long)p;
	/*
	 * A child would see what this process goes on to write. It gets what is saved, and a fault for anything else.
	 */
	r = sys_madvise(p, len, MADV_DONTFORK);
	if (r < 0) {
		sys_munmap(p, len);
		return r;
	}
	*v = (struct sfs_view){.base = p, .len = len};
	return 0;
}

static bool is_saved(const struct sfs_view *v, uint64_t page)
{
	return v->saved && (v->saved[page / BITS] >> page % BITS & 1);
}

static uint64_t bitmap_bytes(const struct sfs_view *v)
{
	return (v->len / PAGE + BITS - 1) / BITS * sizeof(uint64_t);
}

/* The next run of pages in [*from, end) that are saved, or that are not. False: there is none. */
static bool next_run(const struct sfs_view *v, bool saved, uint64_t *from, uint64_t *to, uint64_t end)
{
	while (*from < end && is_saved(v, *from) != saved)
		++*from;
	for (*to = *from; *to < end && is_saved(v, *to) == saved;)
		++*to;
	return *from < end;
}

void sfs_view_unmap(struct sfs_view *v)
{
	uint64_t to;

	if (!v->inherited)
		sys_munmap(v->base, v->len);
	else
		for (uint64_t from = 0; next_run(v, true, &from, &to, v->len / PAGE); from = to)
			sys_munmap(v->base + from * PAGE, (to - from) * PAGE);
	if (v->saved)
		sys_munmap(v->saved, bitmap_bytes(v));
	v->base = NULL;
	v->saved = NULL;
}

/* As much as can be read: the pages that can't be stay the file's. Returns the pages from the start that are copied. */
static uint64_t copy_pages(uint8_t *to, const uint8_t *from, uint64_t n)
{
	if (sfs_copy(to, from, n * PAGE))
		return n;
	for (uint64_t i = 0; i < n; i++)
		if (!sfs_copy(to + i * PAGE, from + i * PAGE, PAGE))
			return i;
	return n;
}

/* One page is put in the place of another while others may read it: the kernel does that in one step. */
static int replace(struct sfs_view *v, uint64_t page, uint8_t *copy, uint64_t n)
{
	const long r = sys_call5(SYS_mremap, (long)copy, (long)(n * PAGE), (long)(n * PAGE), MREMAP_MAYMOVE | MREMAP_FIXED,
				 (long)(v->base + page * PAGE));

	if (r < 0 && r > -4096)
		return (int)r;
	for (uint64_t i = page; i < page + n; i++)
		v->saved[i / BITS] |= 1ull << i % BITS;
	return 0;
}

static int save_run(struct sfs_view *v, uint64_t page, uint64_t n)
{
	while (n > 0) {
		uint8_t *copy = sys_mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		uint64_t got;
		int r;

		if (sys_is_err(copy))
			return (int)(long)copy;
		got = copy_pages(copy, v->base + page * PAGE, n);
		r = (int)sys_call3(SYS_mprotect, (long)copy, (long)(n * PAGE), PROT_READ);
		if (r == 0 && got > 0)
			r = replace(v, page, copy, got);
		if (r < 0 || got == 0)
			sys_munmap(copy, n * PAGE);
		else if (got < n)
			sys_munmap(copy + got * PAGE, (n - got) * PAGE);
		if (r < 0)
			return r;
		/* Past the page that can't be read. */
		got += got < n;
		page += got;
		n -= got;
	}
	return 0;
}

int sfs_view_save(struct sfs_view *v, uint64_t from, uint64_t to, uint64_t *bytes)
{
	const uint64_t end = (to + PAGE - 1) / PAGE;
	uint64_t first = from / PAGE, last;
	int r = 0;

	v->state = SFS_VIEW_STALE;
	if (!v->saved) {
		uint64_t *bits = sfs_map_sparse(bitmap_bytes(v));

		if (sys_is_err(bits))
			return (int)(long)bits;
		v->saved = bits;
	}
	for (; r == 0 && next_run(v, false, &first, &last, end); first = last) {
		r = save_run(v, first, last - first);
		*bytes += r == 0 ? (last - first) * PAGE : 0;
	}
	return r;
}

int sfs_pages_save(uint8_t *p, uint64_t n)
{
	struct sfs_view v = {.base = p, .len = n};
	uint64_t bytes = 0;
	const int r = sfs_view_save(&v, 0, n, &bytes);

	if (v.saved)
		sys_munmap(v.saved, bitmap_bytes(&v));
	return r;
}
