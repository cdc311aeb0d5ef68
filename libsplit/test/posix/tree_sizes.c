/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's own walks over a tree (nftw, ftw, fts) and its makers of temporary files see what has just been written. */
#include "check.h"

#include <fts.h>
#include <ftw.h>
#include <sys/xattr.h>

static off_t walked;

static int add(const char *path, const struct stat *st, int type)
{
	(void)path;
	walked += type == FTW_F ? st->st_size : 0;
	return 0;
}

static int add_n(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)at;
	return add(path, st, type);
}

static off_t by_fts(void)
{
	char *const paths[] = {"tree", NULL};
	FTS *walk = fts_open(paths, FTS_PHYSICAL, NULL);
	off_t sum = 0;

	CHECK(walk);
	for (FTSENT *e; (e = fts_read(walk));)
		sum += e->fts_info == FTS_F ? e->fts_statp->st_size : 0;
	CHECK(fts_close(walk) == 0);
	return sum;
}

int main(void)
{
	char a[] = "tree/aXXXXXX", b[] = "tree/bXXXXXX.txt", value[4] = "";
	int fds[5], n = 0;
	off_t sum = 0;
	struct stat st;

	CHECK(mkdir("tree", 0755) == 0 && mkdir("tree/sub", 0755) == 0);
	CHECK((fds[n++] = mkstemp(a)) >= 0 && (fds[n++] = mkostemps(b, 4, O_APPEND)) >= 0);
	CHECK((fds[n++] = open("tree/c", O_RDWR | O_CREAT, 0644)) >= 0 &&
	      (fds[n++] = open("tree/sub/d", O_RDWR | O_CREAT, 0644)) >= 0);
	for (int round = 1; round < 30; round++) {
		for (int i = 0; i < n; i++) {
			char c[100];

			fill(c, 100, (unsigned)i, (uint64_t)(round - 1) * 100);
			CHECK(write(fds[i], c, 100) == 100);
			sum += 100;
		}
		walked = 0;
		CHECK(nftw("tree", add_n, 10, FTW_PHYS) == 0 && walked == sum);
		walked = 0;
		CHECK(ftw("tree", add, 10) == 0 && walked == sum && by_fts() == sum);
		CHECK(stat(a, &st) == 0 && st.st_size == round * 100 && fstatat(AT_FDCWD, b, &st, 0) == 0 &&
		      st.st_size == round * 100);
	}
	for (int i = 0; i < n; i++)
		expect(fds[i], (unsigned)i, 0, 2900);
	/* attributes beside staged bytes */
	if (fsetxattr(fds[0], "user.a", "abc", 3, 0) == 0)
		CHECK(getxattr(a, "user.a", value, 4) == 3 && memcmp(value, "abc", 3) == 0);
	CHECK(fchmod(fds[0], 0600) == 0 && size_of(fds[0]) == 2900);
	return 0;
}
