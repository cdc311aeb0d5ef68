/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's stdout writes to descriptor 1 inside the C library. A file of ours under that number is served as any
 * other until something is about to be written to stdout, or stdout's position is asked for: every function that could
 * do so comes by here first, and from then on a file under number 1 is the kernel's (stdio.c). So programs that write
 * to 1 by write(2) alone are served: dd, Python, Perl, Java. Before another process shares the file it is the kernel's
 * too (pl_share).
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

/* For what could write to f, or asks for its position. */
static int used(const FILE *f)
{
	const FILE *unused = __atomic_load_n(&pl_stdout, __ATOMIC_RELAXED);

	return likely(!unused || f != unused) ? 0 : pl_stdout_use();
}

/*
 * The wrapper has found that the FILE is stdout, or has to look the function up. What returns no error goes on: the
 * next write has it.
 */
long do_out(const struct request *q)
{
	const unsigned char place = pl_rows[q->call].fd;
	const int err = used(place ? (FILE *)q->a[place - 1] : pl_stdout);

	return err < 0 && pl_rows[q->call].result != PL_V ? err : pl_make(q);
}

/*
 * Wide characters. musl's work on any FILE; glibc's only on FILEs of its own making, and so the first of these calls
 * makes an ordinary one of a FILE of ours (stream.c). Programs that use them on files are few.
 */
long do_wide(const struct request *q)
{
	FILE *f = (FILE *)q->a[pl_rows[q->call].fd - 1];
	int err = pl_stream_to_libc(f);

	if (err >= 0)
		err = used(f);
	return err < 0 ? err : pl_make(q);
}

/* Asking is answered as ever. */
long do_fwide(const struct request *q)
{
	return (int)q->a[1] > 0 ? do_wide(q) : pl_make(q);
}
