/* SPDX-License-Identifier: Apache-2.0 */
#include "io/user.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"

struct total {
	const struct iovec *iov;
	int cnt;
	ssize_t r;
};

static void total_of(void *arg)
{
	struct total *t = arg;

	t->r = sfs_iov_total(t->iov, t->cnt);
}

ssize_t sfs_user_total(const struct iovec *iov, int cnt)
{
	struct total t = {iov, cnt, 0};
	struct sfs_fault f;

	return sfs_try(total_of, &t, &f) ? t.r : -EFAULT;
}

size_t sfs_user_offset(struct sfs_cursor c, size_t total, const struct sfs_fault *f)
{
	for (size_t at = 0; at < total;) {
		size_t got;
		const void *p = sfs_cursor_next(&c, total - at, &got);

		if (sfs_fault_in(f, p, got))
			return at + (f->addr - (uintptr_t)p);
		at += got;
	}
	return total;
}

struct move {
	struct sfs_cursor c;
	uint8_t *ours;
	size_t n;
};

static void move(void *arg)
{
	const struct move *m = arg;
	struct sfs_cursor c = m->c;
	uint8_t *ours = m->ours;

	for (size_t left = m->n; left > 0;) {
		size_t got;
		const uint8_t *theirs = sfs_cursor_next(&c, left, &got);

		memcpy(ours, theirs, got);
		ours += got;
		left -= got;
	}
}

/* Until it goes through: a copy need not begin at its beginning, so what lies before the fault has to be copied again. */
size_t sfs_user_gather(struct sfs_cursor c, uint8_t *to, size_t total)
{
	struct move m = {c, to, total};
	struct sfs_fault f;

	while (m.n > 0 && !sfs_try(move, &m, &f)) {
		const size_t good = sfs_user_offset(c, m.n, &f);

		m.n = good < m.n ? good : 0;
	}
	return m.n;
}

uint8_t *sfs_user_alloc(size_t n)
{
	void *p = sys_mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return sys_is_err(p) ? NULL : p;
}

void sfs_user_free(uint8_t *p, size_t n)
{
	sys_munmap(p, n);
}
