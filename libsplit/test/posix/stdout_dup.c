/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file moved to descriptor 1 and written to there by write(2), then by each function that writes to stdout, then by write(2) again:
 * all bytes are there, in this order. The same when the process ends, runs another program or gives 1 back.
 */
#include "check.h"

#include <grp.h>
#include <pwd.h>
#include <wchar.h>

static void on_puts(void)
{
	puts("x");
}
static void on_printf(void)
{
	printf("%s\n", "x");
}
static void on_fprintf(void)
{
	fprintf(stdout, "%c\n", 'x');
}
static void on_putchar(void)
{
	putchar('x'), putchar('\n');
}
static void on_putchar_unlocked(void)
{
	putchar_unlocked('x'), putchar_unlocked('\n');
}
static void on_putc(void)
{
	putc('x', stdout), putc('\n', stdout);
}
static void on_fputc(void)
{
	fputc('x', stdout), fputc('\n', stdout);
}
static void on_fputs(void)
{
	fputs("x\n", stdout);
}
static void on_fputs_unlocked(void)
{
	fputs_unlocked("x\n", stdout);
}
static void on_fwrite(void)
{
	fwrite("x\n", 1, 2, stdout);
}
static void on_fwrite_unlocked(void)
{
	fwrite_unlocked("x\n", 1, 2, stdout);
}
static void on_wprintf(void)
{
	wprintf(L"x\n");
}
static void on_fputws(void)
{
	fputws(L"x\n", stdout);
}
static void on_putwchar(void)
{
	putwchar(L'x'), putwchar(L'\n');
}
static void on_seek(void)
{
	CHECK(ftell(stdout) == 7 && fseek(stdout, 0, SEEK_END) == 0 && fputs("x\n", stdout) >= 0);
}
static void on_rewind(void)
{
	rewind(stdout);
	CHECK(lseek(1, 0, SEEK_CUR) == 0 && fputs("direct x\n", stdout) >= 0);
}
static void on_unbuffered(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	fputs("x\n", stdout);
}
static void on_fdopen(void)
{
	FILE *f = fdopen(1, "w");

	CHECK(f && fputs("x\n", f) >= 0 && fflush(f) == 0);
}
static void on_dprintf(void)
{
	dprintf(1, "x\n");
}
static void on_system(void)
{
	CHECK(system("echo x") == 0);
}
static void on_unaware(void)
{
	CHECK(system("env -i echo x") == 0); /* a program without the library, where there is one */
}
static void on_freopen(void)
{
	CHECK(freopen("f", "a", stdout) && puts("x") >= 0);
}
static void on_putgrent(void)
{
	const struct group g = {"x", "", 0, (char *[]){NULL}};

	CHECK(putgrent(&g, stdout) == 0 && fflush(stdout) == 0 && size_of(1) == 7 + 6 && ftruncate(1, 8) == 0);
	CHECK(lseek(1, 0, SEEK_END) == 8 && write(1, "\n", 1) == 1);
}

static void (*const ways[])(void) = {
	on_puts,	   on_printf, on_fprintf,	  on_putchar, on_putchar_unlocked, on_putc,	on_fputc,    on_fputs,
	on_fputs_unlocked, on_fwrite, on_fwrite_unlocked, on_wprintf, on_fputws,	   on_putwchar, on_seek,     on_rewind,
	on_unbuffered,	   on_fdopen, on_dprintf,	  on_system,  on_unaware,	   on_freopen,	on_putgrent,
};

/* A new file under number 1. */
static void to_file(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0 && dup2(fd, 1) == 1 && close(fd) == 0);
}

static void child(size_t i)
{
	to_file();
	CHECK(write(1, "direct ", 7) == 7);
	ways[i]();
	CHECK(fflush(stdout) == 0 && write(1, "after", 5) == 5);
}

int main(void)
{
	int saved, fd;
	pid_t pid;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if ((pid = fork()) == 0) {
			child(i);
			exit(0);
		}
		CHECK(status_of(pid) == 0);
		expect_file("f", "direct x\nafter");
	}
	/* ends without a flush, with an exec, and by closing stdout */
	for (int how = 0; how < 3; how++) {
		if ((pid = fork()) == 0) {
			to_file();
			CHECK(write(1, "direct ", 7) == 7);
			if (how == 0)
				_exit(0);
			if (how == 1)
				execlp("echo", "echo", "exec", NULL);
			CHECK(fclose(stdout) == 0 && open("g", O_RDWR | O_CREAT, 0644) == 1 && write(1, "other", 5) == 5);
			_exit(0);
		}
		CHECK(status_of(pid) == 0);
		expect_file("f", how == 1 ? "direct exec\n" : "direct ");
	}
	expect_file("g", "other");
	/* 1 for a while only, as shells do for their builtins; and a file that is opened as 1 */
	CHECK((saved = dup(1)) >= 0);
	to_file();
	CHECK(write(1, "1234", 4) == 4 && lseek(1, 1, SEEK_SET) == 1 && write(1, "--", 2) == 2 && dup2(saved, 1) == 1);
	expect_file("f", "1--4");
	CHECK(close(1) == 0 && (fd = open("h", O_RDWR | O_CREAT, 0644)) == 1 && write(1, "as 1", 4) == 4 && size_of(1) == 4);
	CHECK(dup2(saved, 1) == 1 && printf("done\n") == 5 && fflush(stdout) == 0);
	expect_file("h", "as 1");
	return 0;
}
