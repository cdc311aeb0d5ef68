/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings. One of a file is made of pages of the persistent memory's own memfd, so that the library stores where the file system's
 * blocks are; a hole or what is behind the end is not accessible, and touching it ends the explorer: the library must not.
 */
#include <errno.h>
#include <sys/mman.h>

#include "crash/kern.h"
#include "crash/record.h"
#include "harness.h"

#define MAPPINGS  64
#define ANONYMOUS 512

static struct mapping {
	uint8_t *addr; /* NULL: free */
	size_t len;
	uint32_t ino;
	int prot;
	bool sync;			 /* MAP_SYNC */
	bool stored[KERN_FILE_BLOCKS];	 /* the page was made writable */
	uint16_t page[KERN_FILE_BLOCKS]; /* what it shows; KERN_PRIVATE: memory of the process */
} mappings[MAPPINGS];
#define KERN_PRIVATE 0xffffu

/* What the library got of anonymous memory: given back when the process is forgotten. */
static struct {
	void *p;
	size_t n;
} anonymous[ANONYMOUS];

void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
int __real_munmap(void *addr, size_t len);

void kern_remap(uint32_t ino)
{
	for (int i = 0; i < MAPPINGS; i++) {
		struct mapping *m = &mappings[i];

		if (!m->addr || m->ino != ino)
			continue;
		for (unsigned k = 0; k < KERN_FILE_BLOCKS && (size_t)k * KERN_BLOCK < m->len; k++) {
			const uint16_t b = kern.m.inode[ino].blk[k];
			uint8_t *at = m->addr + (size_t)k * KERN_BLOCK;
			void *p;

			if (m->page[k] == b || m->page[k] == KERN_PRIVATE)
				continue;
			if (b)
				p = __real_mmap(at, KERN_BLOCK, m->prot, MAP_SHARED | MAP_FIXED, record_memfd(),
						(off_t)b * KERN_BLOCK);
			else
				p = __real_mmap(at, KERN_BLOCK, PROT_NONE,
						MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
			CHECK(p == at);
			m->page[k] = b;
			m->stored[k] = false;
		}
	}
}

/* The mapping that has the page of p, and which one that is; NULL. */
static struct mapping *mapping_of(const void *p, size_t *page)
{
	const uint8_t *q = p;

	for (int i = 0; i < MAPPINGS; i++) {
		struct mapping *m = &mappings[i];

		*page = (size_t)(q - m->addr) / KERN_BLOCK;
		if (m->addr && q >= m->addr && q < m->addr + m->len && *page < KERN_FILE_BLOCKS)
			return m;
	}
	return NULL;
}

/* Memory of the process takes the place of pages of a mapping. */
long kern_map_move(void *from, size_t len, void *to)
{
	size_t page;
	struct mapping *m = mapping_of(to, &page);

	CHECK(m && page + len / KERN_BLOCK <= KERN_FILE_BLOCKS);
	for (int i = 0; i < ANONYMOUS; i++)
		if (anonymous[i].p == from)
			anonymous[i].p = NULL;
	CHECK(mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	for (size_t k = 0; k < len / KERN_BLOCK; k++)
		m->page[page + k] = KERN_PRIVATE;
	return (long)to;
}

/* And they are the file's again. */
static long map_again(void *p, size_t len, uint32_t ino, off_t off)
{
	size_t page;
	struct mapping *m = mapping_of(p, &page);

	CHECK(m && m->ino == ino && page == (size_t)off / KERN_BLOCK && page + len / KERN_BLOCK <= KERN_FILE_BLOCKS);
	for (size_t k = 0; k < len / KERN_BLOCK; k++)
		m->page[page + k] = KERN_BLOCKS; /* none that there is */
	kern_remap(ino);
	return (long)p;
}

long kern_map(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	const uint32_t ino = kern_fd_ino(fd);
	void *p;
	int i;

	if (flags & MAP_FIXED)
		return map_again(at, len, ino, off);

	if (flags & MAP_ANONYMOUS) {
		p = __real_mmap(NULL, len, prot, flags, -1, 0);
		for (i = 0; i < ANONYMOUS && anonymous[i].p; i++)
			;
		CHECK(i < ANONYMOUS);
		if (p == MAP_FAILED)
			return -errno;
		anonymous[i].p = p;
		anonymous[i].n = len;
		return (long)p;
	}
	if (!ino || off)
		return -EINVAL;
	for (i = 0; i < MAPPINGS && mappings[i].addr; i++)
		;
	CHECK(i < MAPPINGS);
	p = __real_mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	mappings[i] = (struct mapping){.addr = p, .len = len, .ino = ino, .prot = prot, .sync = flags & MAP_SYNC};
	kern_remap(ino);
	return (long)p;
}

long kern_unmap(void *p, size_t len)
{
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i].addr == p)
			mappings[i].addr = NULL;
	for (int i = 0; i < ANONYMOUS; i++)
		if (anonymous[i].p == p)
			anonymous[i].p = NULL;
	return __real_munmap(p, len) < 0 ? -errno : 0;
}

long kern_map_resize(void *p, size_t old, size_t len)
{
	void *q = mremap(p, old, len, MREMAP_MAYMOVE);

	if (q == MAP_FAILED)
		return -errno;
	for (int i = 0; i < ANONYMOUS; i++)
		if (anonymous[i].p == p) {
			anonymous[i].p = q;
			anonymous[i].n = len;
		}
	return (long)q;
}

bool kern_address(const void *p, uint64_t *at, size_t *n, uint32_t *ino)
{
	const uint8_t *q = p;

	for (int i = 0; i < MAPPINGS; i++) {
		const struct mapping *m = &mappings[i];
		const size_t in = (size_t)(q - m->addr);

		if (!m->addr || q < m->addr || in >= m->len || in / KERN_BLOCK >= KERN_FILE_BLOCKS ||
		    !m->page[in / KERN_BLOCK] || m->page[in / KERN_BLOCK] == KERN_PRIVATE)
			continue;
		*at = (uint64_t)m->page[in / KERN_BLOCK] * KERN_BLOCK + in % KERN_BLOCK;
		*n = KERN_BLOCK - in % KERN_BLOCK;
		*ino = m->ino;
		return true;
	}
	return false;
}

void kern_fault(const void *p, size_t n)
{
	const uint8_t *q = p;

	for (int i = 0; i < MAPPINGS; i++) {
		struct mapping *m = &mappings[i];
		bool commit = false;

		if (!m->addr || !m->sync || q < m->addr || q >= m->addr + m->len)
			continue;
		for (size_t k = (size_t)(q - m->addr) / KERN_BLOCK; k <= (size_t)(q + n - 1 - m->addr) / KERN_BLOCK; k++) {
			if (k >= KERN_FILE_BLOCKS)
				break;
			commit |= !m->stored[k] && m->page[k];
			m->stored[k] = m->page[k];
		}
		if (commit && kern.on_commit)
			kern.on_commit(m->ino);
	}
}

void kern_map_forget(void)
{
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i].addr)
			kern_unmap(mappings[i].addr, mappings[i].len);
	for (int i = 0; i < ANONYMOUS; i++)
		if (anonymous[i].p)
			kern_unmap(anonymous[i].p, anonymous[i].n);
}
