/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's stdout writes to descriptor 1 inside the C library. A file of ours under that number is served as any
 * other until something is about to be written to stdout, or stdout's position is asked for. Every function that could
 * do so comes by here first, and from then on a file under number 1 is the kernel's (stdio.c). So programs that write
 * to 1 by write(2) alone are served: dd, Python, Perl, Java. When another process is about to share the file, it
 * becomes the kernel's too (pl_share).
 */
#include "stream.h"

FILE *pl_stdout;

void pl_stdout_start(void)
{
	FILE **at = pl_found(PL_stdout);

	pl_stdout = at ? *at : NULL;
	if (!pl_stdout)
		pl_stdio_mark(1);
}

int pl_stdout_use(void)
{
	pl_stdio_mark(1);
	__atomic_store_n(&pl_stdout, NULL, __ATOMIC_RELEASE);
	return sfs_ours(1) ? pl_hand_over(1) : 0;
}

/* The call may write to f, or ask for its position. */
static int used(const FILE *f)
{
	const FILE *unused = __atomic_load_n(&pl_stdout, __ATOMIC_RELAXED);

	return likely(!unused || f != unused) ? 0 : pl_stdout_use();
}

/*
 * The FILE is stdout, or the function was not looked up yet. A function that returns no error goes on: the next write
 * fails.
 */
long do_out(const struct request *q)
{
	const unsigned char place = pl_rows[q->call].fd;
	const int err = used(place ? (FILE *)q->a[place - 1] : pl_stdout);

	return err < 0 && pl_rows[q->call].result != PL_V ? err : pl_make(q);
}

/*
 * Wide characters work on any FILE in musl, and in glibc only on FILEs of its own. So the first such call makes an
 * ordinary FILE of one of ours (stream.c). Few programs use wide characters on files.
 */
long do_wide(const struct request *q)
{
	FILE *f = (FILE *)q->a[pl_rows[q->call].fd - 1];
	int err = pl_stream_to_libc(f);

	if (err >= 0)
		err = used(f);
	return err < 0 ? err : pl_make(q);
}

/* With a mode of 0 or less it only asks, or changes nothing about our FILEs. */
long do_fwide(const struct request *q)
{
	return (int)q->a[1] > 0 ? do_wide(q) : pl_make(q);
}
