/* SPDX-License-Identifier: Apache-2.0 */
/* Wide characters through FILEs: a FILE is of one kind from its first use, and what is written can be read back. */
#include "check.h"

#include <locale.h>
#include <wchar.h>

int main(void)
{
	wchar_t line[64];
	char bytes[64];
	FILE *f;
	int n;

	if (!setlocale(LC_ALL, "C.UTF-8"))
		SKIP("no locale C.UTF-8");
	CHECK((f = fopen("w", "w")) && fileno(f) > 2);
	CHECK(fwide(f, 1) > 0 && fputwc(L'\u00e4', f) == L'\u00e4' && fputws(L"\u20ac line\n", f) >= 0);
	CHECK(fwprintf(f, L"%d %ls\n", 42, L"\u00df") == 5 && fflush(f) == 0 && size_of(fileno(f)) == 17 && fclose(f) == 0);
	expect_file("w", "\xc3\xa4\xe2\x82\xac line\n42 \xc3\x9f\n");
	CHECK((f = fopen("w", "r+")) && fgetwc(f) == L'\u00e4' && ungetwc(L'x', f) == L'x' && fgetwc(f) == L'x');
	CHECK(fgetws(line, 64, f) && wcscmp(line, L"\u20ac line\n") == 0);
	CHECK(fwscanf(f, L"%d %ls", &n, line) == 2 && n == 42 && line[0] == L'\u00df');
	CHECK(fseek(f, 0, SEEK_END) == 0 && fputws(L"end", f) >= 0 && fclose(f) == 0);
	expect_file("w", "\xc3\xa4\xe2\x82\xac line\n42 \xc3\x9f\n"
			 "end");
	/* a FILE of bytes stays one */
	CHECK((f = fopen("w", "r")) && fgets(bytes, sizeof(bytes), f) && strcmp(bytes, "\xc3\xa4\xe2\x82\xac line\n") == 0);
	CHECK(fwide(f, 1) < 0 && fgets(bytes, sizeof(bytes), f) && fclose(f) == 0);
	/* and a descriptor beside it sees what is flushed */
	CHECK((f = fopen("w", "a")) && fputwc(L'!', f) == L'!' && fflush(f) == 0);
	CHECK((n = open("w", O_RDONLY)) >= 0 && size_of(n) == 21 && fclose(f) == 0);
	return 0;
}
