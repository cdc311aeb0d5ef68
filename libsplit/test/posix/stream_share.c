/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FILEs and everything around them: descriptors and second FILEs on the same file, dup2 and close behind a FILE's back, fork with
 * something in the buffer, freopen, calls by fileno, files that end in the middle of a write.
 */
#include "check.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

static void two_files(void)
{
	char buf[64];
	FILE *f, *g;
	int fd;

	/* two FILEs over one open file description */
	CHECK((f = fopen("t", "w+")) && (fd = dup(fileno(f))) >= 0 && (g = fdopen(fd, "r+")));
	CHECK(fputs("one ", f) >= 0 && fflush(f) == 0 && fputs("two ", g) >= 0 && fflush(g) == 0 && fputs("three", f) >= 0);
	CHECK(fclose(f) == 0 && ftell(g) == 13 && fseek(g, 4, SEEK_SET) == 0);
	CHECK(fgets(buf, sizeof(buf), g) && strcmp(buf, "two three") == 0 && fclose(g) == 0);
	/* two FILEs with offsets of their own; one sees what the other has flushed */
	CHECK((f = fopen("t", "a")) && (g = fopen("t", "r")) && fseek(g, 0, SEEK_END) == 0 && getc(g) == EOF);
	CHECK(fputs("!", f) >= 0 && fflush(f) == 0);
	clearerr(g);
	CHECK(getc(g) == '!' && getc(g) == EOF && fclose(f) == 0 && fclose(g) == 0);
	/* another file under the FILE's number; then none */
	CHECK((f = fopen("t", "w")) && (fd = open("u", O_RDWR | O_CREAT, 0644)) >= 0);
	CHECK(fputs("t", f) >= 0 && fflush(f) == 0 && fputs("u", f) >= 0 && dup2(fd, fileno(f)) == fileno(f));
	CHECK(fclose(f) == 0 && size_of(fd) == 1 && close(fd) == 0);
	expect_file("t", "t");
	expect_file("u", "u");
	CHECK((f = fopen("t", "w")) && fputs("lost", f) >= 0 && close(fileno(f)) == 0);
	FAILS(fclose(f), EBADF);
	expect_file("t", "");
}

static void by_number(void)
{
	struct stat st;
	FILE *f, *g;

	CHECK((f = fopen("n", "w+")) && fputs("0123456789", f) >= 0 && fflush(f) == 0);
	CHECK(fsync(fileno(f)) == 0 && fdatasync(fileno(f)) == 0 && flock(fileno(f), LOCK_EX) == 0);
	CHECK((g = fopen("n", "r")));
	FAILS(flock(fileno(g), LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(lockf(fileno(f), F_LOCK, 0) == 0 && fstat(fileno(f), &st) == 0 && st.st_size == 10 &&
	      fchmod(fileno(f), 0600) == 0);
	CHECK(ftruncate(fileno(f), 3) == 0 && fseek(f, 0, SEEK_END) == 0 && ftell(f) == 3 && fclose(f) == 0);
	CHECK(flock(fileno(g), LOCK_EX | LOCK_NB) == 0 && getc(g) == '0' && fclose(g) == 0);
	expect_file("n", "012");
	flockfile(stderr);
	funlockfile(stderr);
}

static void forks(void)
{
	FILE *f;
	pid_t pid;
	int up[2];
	char c;

	/* Both write what was in the buffer. */
	CHECK((f = fopen("k", "w")) && fputs("twice ", f) >= 0);
	if ((pid = fork()) == 0)
		exit(fputs("child ", f) < 0);
	CHECK(status_of(pid) == 0 && fputs("parent", f) >= 0 && fclose(f) == 0);
	expect_file("k", "twice child twice parent");
	/* Nobody writes what _exit leaves in a buffer. */
	CHECK((f = fopen("k", "w")));
	if ((pid = fork()) == 0) {
		fputs("gone", f);
		_exit(0);
	}
	CHECK(status_of(pid) == 0 && fclose(f) == 0);
	expect_file("k", "");
	/* two processes that append lines: each line once and whole */
	CHECK(pipe(up) == 0);
	if ((pid = fork()) == 0) {
		CHECK((f = fopen("k", "a")) && read(up[0], &c, 1) == 1);
		for (int i = 0; i < 2000; i++)
			CHECK(fprintf(f, "child %04d\n", i) == 11 && fflush(f) == 0);
		exit(fclose(f));
	}
	CHECK((f = fopen("k", "a")) && write(up[1], "", 1) == 1);
	for (int i = 0; i < 2000; i++)
		CHECK(fprintf(f, "paren %04d\n", i) == 11 && fflush(f) == 0);
	CHECK(fclose(f) == 0 && status_of(pid) == 0 && (f = fopen("k", "r")));
	for (int n[2] = {0, 0}; n[0] + n[1] < 4000;) {
		char line[64], who[8];
		int i;

		CHECK(fgets(line, sizeof(line), f) && strlen(line) == 11 && sscanf(line, "%5s %d", who, &i) == 2);
		CHECK(i == n[*who == 'c']++);
	}
	CHECK(getc(f) == EOF && fclose(f) == 0);
}

static void reopen(void)
{
	char buf[64];
	FILE *f;
	int fd;

	CHECK((f = fopen("a", "w")) && fputs("in a", f) >= 0 && (fd = fileno(f)) >= 0);
	CHECK(freopen("b", "w+", f) == f && fileno(f) == fd && fputs("in b", f) >= 0 && fflush(f) == 0);
	expect_file("a", "in a");
	expect_file("b", "in b");
	CHECK(freopen("a", "r", f) == f && fgets(buf, sizeof(buf), f) && strcmp(buf, "in a") == 0 && fclose(f) == 0);
	CHECK((f = fopen("a", "r+")) && !freopen("none/a", "r", f) && errno == ENOENT);
	CHECK((f = fopen("a", "w+")) && fputs("x", f) >= 0 && freopen(NULL, "a", f) == f && fputs("y", f) >= 0 &&
	      fclose(f) == 0);
	expect_file("a", "xy");
}

/* The file may be 10000 bytes long: what fits is written, then the FILE says so, and again when it is closed. */
static void limits(void)
{
	const struct rlimit small = {10000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
	static char data[30000];
	FILE *f;

	fill(data, sizeof(data), 3, 0);
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &small) == 0);
	CHECK((f = fopen("l", "w")) && fwrite(data, 1, sizeof(data), f) < sizeof(data) && errno == EFBIG && ferror(f));
	fclose(f);
	CHECK((f = fopen("l", "r")) && size_of(fileno(f)) == 10000);
	expect(fileno(f), 3, 0, 10000);
	CHECK(fclose(f) == 0 && (f = fopen("l", "r+")) && fseek(f, 0, SEEK_END) == 0 && putc('x', f) == 'x');
	CHECK((errno = 0, fflush(f)) == EOF && errno == EFBIG && ferror(f));
	fclose(f);
	CHECK((f = fopen("l", "a")) && putc('x', f) == 'x' && (errno = 0, fclose(f)) == EOF && errno == EFBIG);
	CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0 && truncate("l", 3) == 0 && (f = fopen("l", "a")) && putc('x', f) == 'x');
	CHECK(fclose(f) == 0 && (f = fopen("l", "r")) && size_of(fileno(f)) == 4 && fclose(f) == 0);
}

int main(void)
{
	two_files();
	by_number();
	forks();
	reopen();
	limits();
	return 0;
}
