/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern of version control: an exclusive lock file is written, renamed over the data, and read by the next process. */
#include "check.h"

int main(void)
{
	CHECK(close(creat("data", 0644)) == 0);
	for (int i = 0; i < 60; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			char buf[4096];
			int in, out = open("data.lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
			ssize_t n;

			CHECK(out >= 0 && (in = open("data", O_RDONLY)) >= 0);
			while ((n = read(in, buf, sizeof(buf))) > 0)
				CHECK(write(out, buf, (size_t)n) == n);
			fill(buf, 100, 1, (uint64_t)i * 100);
			CHECK(n == 0 && write(out, buf, 100) == 100 && (i % 3 || fsync(out) == 0));
			CHECK((i % 2 || close(out) == 0) && rename("data.lock", "data") == 0);
			_exit(0);
		}
		CHECK((status = status_of(pid)) == 0);
		int fd = open("data", O_RDONLY);

		CHECK(size_of(fd) == (i + 1) * 100);
		expect(fd, 1, 0, ((size_t)i + 1) * 100);
		CHECK(close(fd) == 0);
	}
	return 0;
}
