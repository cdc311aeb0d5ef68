/* SPDX-License-Identifier: Apache-2.0 */
/* Writes, appends, reads back, cuts off, renames: built statically, where no library can be preloaded, and with musl, where it can. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS 60
#define BLOCK  5000

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

int main(void)
{
	static char buf[BLOCK], back[BLOCKS * BLOCK];
	unsigned sum = 0;
	struct stat st;
	FILE *f;
	int fd = open("made", O_RDWR | O_CREAT | O_EXCL, 0640);

	check(fd >= 0, "open");
	for (int i = 0; i < BLOCKS; i++) {
		memset(buf, 'A' + i % 26, sizeof(buf));
		check(write(fd, buf, sizeof(buf)) == sizeof(buf), "write");
	}
	check(fstat(fd, &st) == 0 && st.st_size == sizeof(back), "fstat");
	check(pwrite(fd, "overwritten", 11, 4090) == 11, "pwrite");
	check(pread(fd, back, sizeof(back), 0) == sizeof(back), "pread");
	for (size_t i = 0; i < sizeof(back); i++)
		sum = sum * 31 + (unsigned char)back[i];
	check(ftruncate(fd, 100001) == 0 && lseek(fd, 0, SEEK_END) == 100001, "ftruncate");
	check(fsync(fd) == 0 && close(fd) == 0, "close");
	f = fopen("made", "a+");
	check(f && fprintf(f, "the end %u\n", sum) > 0 && fclose(f) == 0, "append");
	check(rename("made", "kept") == 0 && stat("kept", &st) == 0, "rename");
	printf("%u %lld\n", sum, (long long)st.st_size);
	return 0;
}
