/* SPDX-License-Identifier: Apache-2.0 */
/* An append or a write that is refused leaves the file offset where it was: the file is mapped, so the kernel serves it. */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void refused(int flags)
{
	const struct rlimit none = {10000, RLIM_INFINITY};
	char buf[4000] = {1};
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC | flags, 0644);

	CHECK(fd >= 0 && write(fd, buf, 4000) == 4000 && write(fd, buf, 4000) == 4000 && write(fd, buf, 2000) == 2000);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 10000);
	FAILS(write(fd, buf, 4000), EFBIG);
	CHECK(lseek(fd, 0, SEEK_CUR) == 10000 && size_of(fd) == 10000);
	FAILS(write(fd, buf, 10), EFBIG);
	CHECK(lseek(fd, 0, SEEK_CUR) == 10000 && read(fd, buf, 1) == 0);
	CHECK(close(fd) == 0);
}

int main(void)
{
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	refused(0);
	refused(O_APPEND);
	return 0;
}
