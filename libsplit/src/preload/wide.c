/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wide characters. musl's work on any FILE; glibc's only on FILEs of its own making, and so the first of these calls makes an
 * ordinary one of a FILE of ours (stream.c). Programs that use them on files are few.
 */
#include "stream.h"

#include <wchar.h>

/* The call, when f is or has become fit for it; else `failed`. */
#define WIDE(f, call, failed)                                                                                                  \
	do {                                                                                                                   \
		int err_ = sfs_active() ? pl_stream_to_libc(f) : 0;                                                            \
                                                                                                                               \
		if (likely(err_ >= 0))                                                                                         \
			err_ = pl_stdout_used(f);                                                                              \
                                                                                                                               \
		if (likely(err_ >= 0))                                                                                         \
			return call;                                                                                           \
		pl_ret(err_);                                                                                                  \
		return failed;                                                                                                 \
	} while (0)

/* Asking is answered as ever. */
WRAPPER int w_fwide(FILE *f, int mode)
{
	if (mode <= 0)
		return REAL(fwide)(f, mode);
	WIDE(f, REAL(fwide)(f, mode), -1);
}
EXPORT(fwide, w_fwide);

#define GETWC(name)                                                                                                            \
	WRAPPER wint_t w_##name(FILE *f)                                                                                       \
	{                                                                                                                      \
		WIDE(f, REAL(name)(f), WEOF);                                                                                  \
	}
GETWC(fgetwc)
GETWC(fgetwc_unlocked)
EXPORT(fgetwc, w_fgetwc);
EXPORT(getwc, w_fgetwc);
EXPORT(fgetwc_unlocked, w_fgetwc_unlocked);
EXPORT(getwc_unlocked, w_fgetwc_unlocked);

#define GETWS(name)                                                                                                            \
	WRAPPER wchar_t *w_##name(wchar_t *s, int n, FILE *f)                                                                  \
	{                                                                                                                      \
		WIDE(f, REAL(name)(s, n, f), NULL);                                                                            \
	}
GETWS(fgetws)
GETWS(fgetws_unlocked)
EXPORT(fgetws, w_fgetws);
EXPORT(fgetws_unlocked, w_fgetws_unlocked);

typedef wchar_t *(*getws_chk)(wchar_t *, size_t, int, FILE *);
#define GETWS_CHK(name)                                                                                                        \
	WRAPPER wchar_t *w##name(wchar_t *s, size_t room, int n, FILE *f)                                                      \
	{                                                                                                                      \
		WIDE(f, REAL_AS(getws_chk, name)(s, room, n, f), NULL);                                                        \
	}
GETWS_CHK(__fgetws_chk)
GETWS_CHK(__fgetws_unlocked_chk)
EXPORT(__fgetws_chk, w__fgetws_chk);
EXPORT(__fgetws_unlocked_chk, w__fgetws_unlocked_chk);

#define PUTWC(name)                                                                                                            \
	WRAPPER wint_t w_##name(wchar_t c, FILE *f)                                                                            \
	{                                                                                                                      \
		WIDE(f, REAL(name)(c, f), WEOF);                                                                               \
	}
PUTWC(fputwc)
PUTWC(fputwc_unlocked)
EXPORT(fputwc, w_fputwc);
EXPORT(putwc, w_fputwc);
EXPORT(fputwc_unlocked, w_fputwc_unlocked);
EXPORT(putwc_unlocked, w_fputwc_unlocked);

#define PUTWS(name)                                                                                                            \
	WRAPPER int w_##name(const wchar_t *s, FILE *f)                                                                        \
	{                                                                                                                      \
		WIDE(f, REAL(name)(s, f), -1);                                                                                 \
	}
PUTWS(fputws)
PUTWS(fputws_unlocked)
EXPORT(fputws, w_fputws);
EXPORT(fputws_unlocked, w_fputws_unlocked);

/* What goes to stdout without saying so; it is no FILE of ours. */
#define TO_STDOUT(call, failed)                                                                                                \
	do {                                                                                                                   \
		int err_ = pl_stdout_used(pl_stdout);                                                                          \
                                                                                                                               \
		if (likely(err_ >= 0))                                                                                         \
			return call;                                                                                           \
		pl_ret(err_);                                                                                                  \
		return failed;                                                                                                 \
	} while (0)

WRAPPER wint_t w_putwchar(wchar_t c)
{
	TO_STDOUT(REAL(putwchar)(c), WEOF);
}
EXPORT(putwchar, w_putwchar);

WRAPPER wint_t w_putwchar_unlocked(wchar_t c)
{
	TO_STDOUT(REAL(putwchar_unlocked)(c), WEOF);
}
EXPORT(putwchar_unlocked, w_putwchar_unlocked);

WRAPPER wint_t w_ungetwc(wint_t c, FILE *f)
{
	WIDE(f, REAL(ungetwc)(c, f), WEOF);
}
EXPORT(ungetwc, w_ungetwc);

/* Formats: each variadic name is its v... name with the arguments collected. */
typedef int (*format_chk)(FILE *, int, const wchar_t *, va_list);
typedef int (*format)(FILE *, const wchar_t *, va_list);

#define FORMAT(vname, name)                                                                                                    \
	WRAPPER int w_##vname(FILE *f, const wchar_t *fmt, va_list ap)                                                         \
	{                                                                                                                      \
		WIDE(f, REAL_AS(format, vname)(f, fmt, ap), -1);                                                               \
	}                                                                                                                      \
	WRAPPER int w_##name(FILE *f, const wchar_t *fmt, ...)                                                                 \
	{                                                                                                                      \
		COLLECTED(int, fmt, w_##vname(f, fmt, ap));                                                                    \
	}                                                                                                                      \
	EXPORT(vname, w_##vname);                                                                                              \
	EXPORT(name, w_##name)

FORMAT(vfwprintf, fwprintf);
FORMAT(vfwscanf, fwscanf);
FORMAT(__isoc99_vfwscanf, __isoc99_fwscanf);
FORMAT(__isoc23_vfwscanf, __isoc23_fwscanf);

WRAPPER int w_vfwprintf_chk(FILE *f, int flag, const wchar_t *fmt, va_list ap)
{
	WIDE(f, REAL_AS(format_chk, __vfwprintf_chk)(f, flag, fmt, ap), -1);
}
EXPORT(__vfwprintf_chk, w_vfwprintf_chk);

WRAPPER int w_fwprintf_chk(FILE *f, int flag, const wchar_t *fmt, ...)
{
	COLLECTED(int, fmt, w_vfwprintf_chk(f, flag, fmt, ap));
}
EXPORT(__fwprintf_chk, w_fwprintf_chk);

WRAPPER int w_vwprintf(const wchar_t *fmt, va_list ap)
{
	TO_STDOUT(REAL(vwprintf)(fmt, ap), -1);
}
EXPORT(vwprintf, w_vwprintf);

WRAPPER int w_vwprintf_chk(int flag, const wchar_t *fmt, va_list ap)
{
	TO_STDOUT(REAL_AS(int (*)(int, const wchar_t *, va_list), __vwprintf_chk)(flag, fmt, ap), -1);
}
EXPORT(__vwprintf_chk, w_vwprintf_chk);

WRAPPER int w_wprintf(const wchar_t *fmt, ...)
{
	COLLECTED(int, fmt, w_vwprintf(fmt, ap));
}
EXPORT(wprintf, w_wprintf);

WRAPPER int w_wprintf_chk(int flag, const wchar_t *fmt, ...)
{
	COLLECTED(int, fmt, w_vwprintf_chk(flag, fmt, ap));
}
EXPORT(__wprintf_chk, w_wprintf_chk);
