/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dprintf(3) writes inside the C library, at the descriptor's offset. For a file of ours that is the core's, which other threads and
 * processes write at as well; so the text is printed to memory, and written from there as by write(2).
 */
#include "stream.h"

#include <stdarg.h>
#include <sys/mman.h>

#include "base/sys.h"

/* Print to n bytes at buf as vdprintf or __vdprintf_chk would to the file. Returns as vsnprintf. */
static int print(const struct request *q, char *buf, size_t n)
{
	typedef int checked(char *buf, size_t n, int flag, size_t have, const char *format, va_list list);
	const bool check = q->call == PL___vdprintf_chk;
	const char *format = (const char *)q->a[check ? 2 : 1];
	va_list list;
	int r;

	va_copy(list, *(va_list *)q->a[check ? 3 : 2]);
	if (check)
		r = REAL_AS(checked *, __vsnprintf_chk)(buf, n, (int)q->a[1], n, format, list);
	else
		r = REAL(vsnprintf)(buf, n, format, list);
	va_end(list);
	return r;
}

long do_print(const struct request *q)
{
	char small[1024], *buf = small;
	size_t size = sizeof(small), done = 0;
	int n;

	if (!sfs_ours(pl_fd(q)))
		return pl_make(q);
	pl_cancel_point();
	/* What it prints may grow meanwhile, by another thread. */
	while ((n = print(q, buf, size)) >= 0 && (size_t)n >= size) {
		if (buf != small)
			sys_munmap(buf, size);
		size = (size_t)n + 1;
		buf = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sys_is_err(buf))
			return -ENOMEM;
	}
	if (n > 0)
		done = pl_write_all(pl_fd(q), buf, (size_t)n);
	if (buf != small)
		sys_munmap(buf, size);
	return n < 0 || done < (size_t)n ? PL_FAILED : n;
}
