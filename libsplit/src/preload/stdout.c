/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's stdout writes to descriptor 1 inside the C library. A file of ours under that number is served as any other until
 * something is about to be written to stdout, or stdout's position is asked for: every function that could do so comes by here first, and
 * from then on a file under number 1 is the kernel's (stdio.c). So programs that write to 1 by write(2) alone are served: dd,
 * Python, Perl, Java. Before another process shares the file it is the kernel's too (pl_share).
 */
#include "stream.h"
#include "real_fallback.h"

#include <grp.h>
#include <gshadow.h>
#include <malloc.h>
#include <mntent.h>
#include <pwd.h>
#include <shadow.h>

FILE *pl_stdout;

void pl_stdout_start(void)
{
	/* dlsym finds the variable; functions stand for what it did not find. */
	if (pl_real(PL_stdout) != (void *)pl_fb_null)
		pl_stdout = *(FILE **)pl_real(PL_stdout);
	if (!pl_stdout)
		pl_stdio_mark(1);
}

int pl_stdout_use(void)
{
	pl_stdio_mark(1);
	__atomic_store_n(&pl_stdout, NULL, __ATOMIC_RELEASE);
	return sfs_ours(1) ? pl_hand_over(1) : 0;
}

/* The call, unless it is the first one on stdout and the file under it can't be handed over. */
#define ON(f, call, failed)                                                                                                    \
	do {                                                                                                                   \
		int err_ = pl_stdout_used(f);                                                                                  \
                                                                                                                               \
		if (likely(err_ == 0))                                                                                         \
			return call;                                                                                           \
		pl_ret(err_);                                                                                                  \
		return failed;                                                                                                 \
	} while (0)

/* A function of one FILE and anything else; of stdout, when it takes none. */
#define ONE(type, name, failed, params, args, f)                                                                               \
	WRAPPER type w_##name params                                                                                           \
	{                                                                                                                      \
		ON(f, REAL_AS(type(*) params, name) args, failed);                                                             \
	}                                                                                                                      \
	EXPORT(name, w_##name)

ONE(int, fputc, EOF, (int c, FILE *f), (c, f), f);
EXPORT(putc, w_fputc);
EXPORT(_IO_putc, w_fputc);
ONE(int, fputc_unlocked, EOF, (int c, FILE *f), (c, f), f);
EXPORT(putc_unlocked, w_fputc_unlocked);
ONE(int, putchar, EOF, (int c), (c), pl_stdout);
ONE(int, putchar_unlocked, EOF, (int c), (c), pl_stdout);
ONE(int, putw, EOF, (int w, FILE *f), (w, f), f);
ONE(int, puts, EOF, (const char *s), (s), pl_stdout);
EXPORT(_IO_puts, w_puts);
ONE(int, fputs, EOF, (const char *s, FILE *f), (s, f), f);
EXPORT(_IO_fputs, w_fputs);
ONE(int, fputs_unlocked, EOF, (const char *s, FILE *f), (s, f), f);
ONE(size_t, fwrite, 0, (const void *p, size_t size, size_t n, FILE *f), (p, size, n, f), f);
EXPORT(_IO_fwrite, w_fwrite);
ONE(size_t, fwrite_unlocked, 0, (const void *p, size_t size, size_t n, FILE *f), (p, size, n, f), f);
ONE(int, __overflow, EOF, (FILE * f, int c), (f, c), f); /* putc_unlocked in a program, when the buffer is full */

ONE(int, fseek, -1, (FILE * f, long off, int whence), (f, off, whence), f);
ONE(int, fseeko, -1, (FILE * f, off_t off, int whence), (f, off, whence), f);
EXPORT(fseeko64, w_fseeko);
ONE(long, ftell, -1, (FILE * f), (f), f);
EXPORT(_IO_ftell, w_ftell);
ONE(off_t, ftello, -1, (FILE * f), (f), f);
EXPORT(ftello64, w_ftello);
ONE(int, fgetpos, -1, (FILE * f, fpos_t *pos), (f, pos), f);
EXPORT(fgetpos64, w_fgetpos);
EXPORT(_IO_fgetpos, w_fgetpos);
EXPORT(_IO_fgetpos64, w_fgetpos);
ONE(int, fsetpos, -1, (FILE * f, const fpos_t *pos), (f, pos), f);
EXPORT(fsetpos64, w_fsetpos);
EXPORT(_IO_fsetpos, w_fsetpos);
EXPORT(_IO_fsetpos64, w_fsetpos);

/* It reports no error: the next write does. */
WRAPPER void w_rewind(FILE *f)
{
	pl_stdout_used(f);
	REAL(rewind)(f);
}
EXPORT(rewind, w_rewind);

/* Whole records. */
ONE(int, putpwent, -1, (const struct passwd *p, FILE *f), (p, f), f);
ONE(int, putgrent, -1, (const struct group *g, FILE *f), (g, f), f);
ONE(int, putspent, -1, (const struct spwd *s, FILE *f), (s, f), f);
ONE(int, putsgent, -1, (const struct sgrp *s, FILE *f), (s, f), f);
ONE(int, addmntent, 1, (FILE * f, const struct mntent *m), (f, m), f);
ONE(int, malloc_info, -1, (int options, FILE *f), (options, f), f);

/* glibc's parser of arguments prints its help. */
WRAPPER int w_argp_parse(const void *argp, int argc, char **argv, unsigned flags, int *index, void *input)
{
	typedef int (*argp_parse)(const void *, int, char **, unsigned, int *, void *);
	int err = pl_stdout_used(pl_stdout);

	return err < 0 ? -err : REAL_AS(argp_parse, argp_parse)(argp, argc, argv, flags, index, input);
}
EXPORT(argp_parse, w_argp_parse);
EXPORT(__argp_parse, w_argp_parse);

WRAPPER void w_argp_help(const void *argp, FILE *f, unsigned flags, char *name)
{
	pl_stdout_used(f);
	REAL_AS(void (*)(const void *, FILE *, unsigned, char *), argp_help)(argp, f, flags, name);
}
EXPORT(argp_help, w_argp_help);
EXPORT(__argp_help, w_argp_help);

WRAPPER void w_argp_state_help(const void *state, FILE *f, unsigned flags)
{
	pl_stdout_used(f);
	REAL_AS(void (*)(const void *, FILE *, unsigned), argp_state_help)(state, f, flags);
}
EXPORT(argp_state_help, w_argp_state_help);
EXPORT(__argp_state_help, w_argp_state_help);

/* Formats. */
ONE(int, vfprintf, -1, (FILE * f, const char *fmt, va_list ap), (f, fmt, ap), f);
EXPORT(_IO_vfprintf, w_vfprintf);
ONE(int, vprintf, -1, (const char *fmt, va_list ap), (fmt, ap), pl_stdout);
ONE(int, __vfprintf_chk, -1, (FILE * f, int flag, const char *fmt, va_list ap), (f, flag, fmt, ap), f);
ONE(int, __vprintf_chk, -1, (int flag, const char *fmt, va_list ap), (flag, fmt, ap), pl_stdout);

WRAPPER int w_fprintf(FILE *f, const char *fmt, ...)
{
	COLLECTED(int, fmt, w_vfprintf(f, fmt, ap));
}
EXPORT(fprintf, w_fprintf);
EXPORT(_IO_fprintf, w_fprintf);

WRAPPER int w_printf(const char *fmt, ...)
{
	COLLECTED(int, fmt, w_vprintf(fmt, ap));
}
EXPORT(printf, w_printf);
EXPORT(_IO_printf, w_printf);

WRAPPER int w_fprintf_chk(FILE *f, int flag, const char *fmt, ...)
{
	COLLECTED(int, fmt, w___vfprintf_chk(f, flag, fmt, ap));
}
EXPORT(__fprintf_chk, w_fprintf_chk);

WRAPPER int w_printf_chk(int flag, const char *fmt, ...)
{
	COLLECTED(int, fmt, w___vprintf_chk(flag, fmt, ap));
}
EXPORT(__printf_chk, w_printf_chk);
