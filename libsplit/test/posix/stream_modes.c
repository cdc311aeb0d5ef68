/* SPDX-License-Identifier: Apache-2.0 */
/* fopen's modes: what each makes of the file, its descriptor and its position; what each refuses. */
#include "check.h"

static void content(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	write_all(fd, text, strlen(text));
	CHECK(close(fd) == 0);
}

/* Open f, write "XY" at once, and close: the file is then `after`, or the FILE can't be written. */
static void mode(const char *mode, const char *after, int flags)
{
	FILE *f;
	int fd;

	content("f", "0123456789");
	CHECK((f = fopen("f", mode)));
	CHECK((fd = fileno(f)) > 2);
	CHECK((fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == flags);
	CHECK(!!(fcntl(fd, F_GETFD) & FD_CLOEXEC) == !!strchr(mode, 'e'));
	if (after) {
		CHECK(fputs("XY", f) >= 0 && fflush(f) == 0 && !ferror(f) && fclose(f) == 0);
		expect_file("f", after);
	} else {
		CHECK(fputs("XY", f) == EOF && ferror(f) && fclose(f) == 0);
		expect_file("f", "0123456789");
	}
	FAILS(fcntl(fd, F_GETFD), EBADF);
}

static void positions(void)
{
	char buf[64];
	FILE *f;

	content("f", "0123456789");
	CHECK((f = fopen("f", "r+")));
	CHECK(fread(buf, 1, 3, f) == 3 && ftell(f) == 3 && ftello(f) == 3);
	CHECK(ungetc('z', f) == 'z' && ftell(f) == 2 && getc(f) == 'z' && getc(f) == '3');
	CHECK(fseek(f, -2, SEEK_END) == 0 && fread(buf, 1, 10, f) == 2 && feof(f) && memcmp(buf, "89", 2) == 0);
	CHECK(getc(f) == EOF && !ferror(f));
	clearerr(f);
	CHECK(fseek(f, 0, SEEK_CUR) == 0 && fputs("ab", f) >= 0 && ftell(f) == 12);
	rewind(f);
	CHECK(fgets(buf, sizeof(buf), f) && strcmp(buf, "0123456789ab") == 0);
	CHECK(fseeko(f, 5ll << 30, SEEK_SET) == 0 && putc('!', f) == '!' && ftello(f) == (5ll << 30) + 1 && fflush(f) == 0);
	CHECK(size_of(fileno(f)) == (5ll << 30) + 1);
	FAILS(fseek(f, -1, SEEK_SET), EINVAL);
	CHECK(ftruncate(fileno(f), 4) == 0 && fseek(f, 0, SEEK_END) == 0 && ftell(f) == 4 && fclose(f) == 0);
	expect_file("f", "0123");
	/* a+ reads from the start and writes at the end, wherever that is by then */
	CHECK((f = fopen("f", "a+")) && getc(f) == '0');
	CHECK(fseek(f, 1, SEEK_SET) == 0 && fputs("45", f) >= 0 && fflush(f) == 0 && ftell(f) == 6);
	CHECK(fseek(f, 2, SEEK_SET) == 0 && fgets(buf, sizeof(buf), f) && strcmp(buf, "2345") == 0 && fclose(f) == 0);
	expect_file("f", "012345");
}

static void buffers(void)
{
	static char big[100000], own[777], back[sizeof(big)];
	FILE *f;
	int fd;

	fill(big, sizeof(big), 1, 0);
	CHECK((f = fopen("b", "w+")) && (fd = open("b", O_RDONLY)) >= 0);
	CHECK(putc('x', f) == 'x' && size_of(fd) == 0 && fflush(f) == 0 && size_of(fd) == 1);
	CHECK(fclose(f) == 0 && (f = fopen("b", "w")) && setvbuf(f, NULL, _IONBF, 0) == 0);
	CHECK(putc('x', f) == 'x' && size_of(fd) == 1 && fprintf(f, "%d", 10) == 2 && size_of(fd) == 3 && fclose(f) == 0);
	CHECK((f = fopen("b", "w")) && setvbuf(f, own, _IOLBF, sizeof(own)) == 0);
	CHECK(fputs("line\nrest", f) >= 0 && size_of(fd) >= 5 && fclose(f) == 0 && size_of(fd) == 9);
	/* odd pieces, longer and shorter than any buffer */
	CHECK((f = fopen("b", "w+")) && setvbuf(f, own, _IOFBF, sizeof(own)) == 0);
	for (size_t at = 0, n = 1; at < sizeof(big); at += n, n = n * 3 % 5003 + 1) {
		if (n > sizeof(big) - at)
			n = sizeof(big) - at;
		CHECK(fwrite(big + at, 1, n, f) == n);
	}
	CHECK(fflush(f) == 0);
	expect(fd, 1, 0, sizeof(big));
	rewind(f);
	for (size_t at = 0, n = 1; at < sizeof(big); at += n, n = n * 7 % 3001 + 1) {
		if (n > sizeof(big) - at)
			n = sizeof(big) - at;
		CHECK(fread(back + at, 1, n, f) == n);
	}
	CHECK(memcmp(big, back, sizeof(big)) == 0 && getc(f) == EOF && feof(f) && fclose(f) == 0 && close(fd) == 0);
}

int main(void)
{
	FILE *f;
	int fd;

	mode("r", NULL, O_RDONLY);
	mode("rb", NULL, O_RDONLY);
	mode("re", NULL, O_RDONLY);
	mode("r+", "XY23456789", O_RDWR);
	mode("rb+", "XY23456789", O_RDWR);
	mode("r+e", "XY23456789", O_RDWR);
	mode("w", "XY", O_WRONLY);
	mode("we", "XY", O_WRONLY);
	mode("w+b", "XY", O_RDWR);
	mode("a", "0123456789XY", O_WRONLY | O_APPEND);
	mode("ab", "0123456789XY", O_WRONLY | O_APPEND);
	mode("a+", "0123456789XY", O_RDWR | O_APPEND);
	CHECK(!fopen("f", "wx") && errno == EEXIST && !fopen("f", "w+x") && errno == EEXIST);
	CHECK((f = fopen("new", "wx")) && fputs("n", f) >= 0 && fclose(f) == 0);
	expect_file("new", "n");
	CHECK(!fopen("f", "q") && errno == EINVAL);
	CHECK(!fopen("none", "r") && errno == ENOENT && !fopen("none/f", "w") && errno == ENOENT);
	CHECK(!fopen(".", "w") && errno == EISDIR);
	/* A directory can be opened, and not be read. */
	CHECK((f = fopen(".", "r")) && getc(f) == EOF && ferror(f) && errno == EISDIR && fclose(f) == 0);
	/* What is written through a FILE for reading, or read through one for writing */
	CHECK((f = fopen("f", "w")) && getc(f) == EOF && ferror(f) && fclose(f) == 0);
	/* fdopen shares the descriptor and its offset, and may not want more than it can */
	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	write_all(fd, "abcdef", 6);
	CHECK((f = fdopen(fd, "a")) && fileno(f) == fd && fcntl(fd, F_GETFL) & O_APPEND && lseek(fd, 0, SEEK_SET) == 0);
	CHECK(fputs("gh", f) >= 0 && fclose(f) == 0);
	FAILS(fcntl(fd, F_GETFD), EBADF);
	CHECK((fd = open("f", O_RDWR)) >= 0 && lseek(fd, 2, SEEK_SET) == 2 && (f = fdopen(fd, "w")));
	CHECK(fputs("CD", f) >= 0 && fflush(f) == 0 && lseek(fd, 0, SEEK_CUR) == 4 && fclose(f) == 0);
	expect_file("f", "abCDefgh");
	positions();
	buffers();
	return 0;
}
