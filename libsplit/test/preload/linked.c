/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends and takes a snapshot, and says on standard output "core" where the library serves both, "copy" where the snapshot is one and the
 * kernel has written, and "none" where there is no snapshot without a copy. Exit 1: what it reads is wrong, or one of them alone is served.
 */
#include <dlfcn.h>

#include "../posix/peek.h"

static int libraries(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	CHECK(maps);
	/* The beginning of each of its images. */
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/libsplit.so") && strstr(line, " 00000000 ");
	CHECK(fclose(maps) == 0);
	return n;
}

int main(int argc, char **argv)
{
	const char *said;
	const void *p;
	size_t got;
	int fd, served;

	CHECK(argc < 3 || dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL));
	CHECK(libraries() <= 1);
	if (argc > 1 && strcmp(argv[1], "copy") == 0)
		splitfs_flags(SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	put(fd, 1, 0, 3 * BLOCK);
	served = unseen_size(fd) == 0 && size_of(fd) == 3 * BLOCK;
	errno = 0;
	p = splitfs_peek(fd, 0, 3 * BLOCK, &got);
	CHECK(p || errno == ENOTSUP);
	said = !p ? "none" : in_file(p, fd) ? "core" : "copy";
	CHECK(served == (strcmp(said, "core") == 0));
	put(fd, 2, BLOCK, BLOCK);
	expect(fd, 1, 0, BLOCK);
	expect(fd, 2, BLOCK, BLOCK);
	if (p) {
		expect_snapshot(p, 1, 0, 3 * BLOCK);
		CHECK(splitfs_unpeek(p) == 0);
	}
	CHECK(close(fd) == 0 && puts(said) > 0);
	return 0;
}
