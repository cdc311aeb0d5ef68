/* SPDX-License-Identifier: Apache-2.0 */
/* A program that was just written and closed can be executed: nobody has it open for writing any more. */
#include "check.h"

enum { ROUNDS = 150 };

static int run(const char *path)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		execl(path, path, (char *)0);
		_exit(errno == ETXTBSY ? 100 : 101);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(void)
{
	static char image[1 << 20];
	int in = open("/bin/true", O_RDONLY), busy = 0;
	ssize_t n;

	CHECK(in >= 0 && (n = read(in, image, sizeof(image))) > 0);
	for (int i = 0; i < ROUNDS; i++) {
		char name[32];
		int fd, status;

		sprintf(name, "program%d", i);
		CHECK((fd = open(name, O_WRONLY | O_CREAT, 0644)) >= 0);
		write_all(fd, image, (size_t)n);
		CHECK(close(fd) == 0 && chmod(name, 0755) == 0);
		status = run(name);
		CHECK(status == 0 || status == 100);
		busy += status == 100;
		CHECK(unlink(name) == 0);
	}
	if (busy)
		fprintf(stderr, "%d of %d: ETXTBSY\n", busy, ROUNDS);
	return busy > 0;
}
