/* SPDX-License-Identifier: Apache-2.0 */
/* A long writev(2) that meets RLIMIT_FSIZE: in how many pieces ever it is written, it goes as far as the limit, and no signal says so. */
#include "check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define MB (1u << 20)

static volatile sig_atomic_t signals;

static void note(int sig)
{
	(void)sig;
	signals++;
}

static void written(const size_t *len, int cnt, size_t total, size_t limit)
{
	const struct rlimit upto = {limit, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
	char *buf = malloc(total), *at = buf;
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
	struct iovec iov[8];

	CHECK(buf && fd >= 0);
	fill(buf, total, 1, 0);
	for (int i = 0; i < cnt; i++, at += iov[i - 1].iov_len)
		iov[i] = (struct iovec){at, len[i]};
	CHECK(setrlimit(RLIMIT_FSIZE, &upto) == 0);
	CHECK(writev(fd, iov, cnt) == (ssize_t)limit);
	CHECK(signals == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)limit && size_of(fd) == (off_t)limit);
	FAILS(write(fd, buf, 1), EFBIG);
	CHECK(signals == 1 && lseek(fd, 0, SEEK_CUR) == (off_t)limit);
	signals = 0;
	expect(fd, 1, 0, limit);
	CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0 && close(fd) == 0);
	free(buf);
}

int main(void)
{
	CHECK(signal(SIGXFSZ, note) != SIG_ERR);
	written((const size_t[]){8 * MB, 2 * MB, 6 * MB}, 3, 16 * MB, 12 * MB);
	written((const size_t[]){8 * MB, 0, 2 * MB, 6 * MB}, 4, 16 * MB, 12 * MB);
	written((const size_t[]){9 * MB, 1 * MB, 1 * MB, 5 * MB}, 4, 16 * MB, 13 * MB);
	written((const size_t[]){8 * MB, 4 * MB, 4 * MB}, 3, 16 * MB, 12 * MB);
	written((const size_t[]){8 * MB, 8 * MB}, 2, 16 * MB, 8 * MB);
	written((const size_t[]){16 * MB}, 1, 16 * MB, 8 * MB);
	return 0;
}
