/* SPDX-License-Identifier: Apache-2.0 */
/* FILEs and descriptors on one file: each sees what the other wrote (after fflush), and exit flushes. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), status;
	char line[64];
	FILE *f;
	pid_t pid;

	CHECK(write(fd, "by write\n", 9) == 9);
	CHECK((f = fopen("f", "r+")) && fgets(line, sizeof(line), f) && strcmp(line, "by write\n") == 0);
	CHECK(fseek(f, 0, SEEK_END) == 0 && fprintf(f, "by %s\n", "stdio") == 9 && fflush(f) == 0);
	CHECK(size_of(fd) == 18 && lseek(fd, 0, SEEK_END) == 18 && write(fd, "again\n", 6) == 6);
	CHECK(fseek(f, 0, SEEK_CUR) == 0 && fgets(line, sizeof(line), f) && strcmp(line, "again\n") == 0 && fclose(f) == 0);
	expect_file("f", "by write\nby stdio\nagain\n");
	CHECK((f = fopen("f", "w")) && size_of(fd) == 0 && fputs("new", f) >= 0 && fclose(f) == 0 && size_of(fd) == 3);
	CHECK(lseek(fd, 0, SEEK_END) == 3 && write(fd, "er", 2) == 2 && (f = fdopen(fd, "a")) && fputs("!", f) >= 0);
	CHECK(fclose(f) == 0);
	expect_file("f", "newer!");
	/* descriptors that take the number of a stream */
	if ((pid = fork()) == 0) {
		int out = open("o", O_WRONLY | O_CREAT | O_APPEND, 0644);

		CHECK(write(out, "write ", 6) == 6 && dup2(out, 1) == 1 && close(out) == 0);
		printf("printf ");
		fflush(stdout);
		CHECK(write(1, "write1 ", 7) == 7);
		printf("at exit");
		exit(5);
	}
	CHECK((status = status_of(pid)) == 5);
	expect_file("o", "write printf write1 at exit");
	CHECK(freopen("o", "a", stdout) && printf(" freopen") == 8 && fflush(stdout) == 0 && write(1, " w", 2) == 2);
	CHECK(dprintf(1, " %s", "d") == 2);
	expect_file("o", "write printf write1 at exit freopen w d");
	CHECK((f = popen("cat >> o", "w")) && fputs(" popen", f) >= 0 && pclose(f) == 0 &&
	      system("printf ' system' >> o") == 0);
	expect_file("o", "write printf write1 at exit freopen w d popen system");
	CHECK((f = tmpfile()) && fputs("x", f) >= 0 && fflush(f) == 0 && size_of(fileno(f)) == 1);
	return 0;
}
