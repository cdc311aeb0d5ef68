/* SPDX-License-Identifier: Apache-2.0 */
/* A child with a terminal of its own, of a program whose standard output is a file: the terminal gets what the child writes, and the file nothing. */
#include "check.h"

#include <pty.h>

int main(void)
{
	char got[256] = "";
	int master, fd;
	size_t n = 0;
	ssize_t r;
	pid_t pid;

	CHECK((fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && dup2(fd, 1) == 1);
	CHECK(write(1, "before ", 7) == 7);
	CHECK((pid = forkpty(&master, NULL, NULL, NULL)) >= 0);
	if (pid == 0) {
		CHECK(isatty(1) && write(1, "child\n", 6) == 6);
		_exit(0);
	}
	/* EIO: nobody has the terminal open any more. */
	while (n < sizeof(got) - 1 && (r = read(master, got + n, sizeof(got) - 1 - n)) > 0)
		n += (size_t)r;
	CHECK(status_of(pid) == 0);
	fprintf(stderr, "the terminal got '%s'\n", got);
	CHECK(strcmp(got, "child\r\n") == 0);
	CHECK(write(1, "after", 5) == 5 && close(fd) == 0 && close(1) == 0);
	expect_file("out", "before after");
	return 0;
}
