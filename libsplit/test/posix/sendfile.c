/* SPDX-License-Identifier: Apache-2.0 */
/* sendfile and splice take freshly written bytes, and move offsets. */
#include "check.h"

#include <sys/sendfile.h>

int main(void)
{
	int in = open("in", O_RDWR | O_CREAT, 0644), out = open("out", O_RDWR | O_CREAT, 0644), pipes[2];
	off_t off = 100;
	char buf[64];

	put(in, 1, 0, 50000);
	CHECK(lseek(in, 0, SEEK_SET) == 0 && sendfile(out, in, NULL, 50000) == 50000);
	CHECK(lseek(in, 0, SEEK_CUR) == 50000 && lseek(out, 0, SEEK_CUR) == 50000 && size_of(out) == 50000);
	expect(out, 1, 0, 50000);
	CHECK(sendfile(out, in, &off, 10) == 10 && off == 110 && lseek(in, 0, SEEK_CUR) == 50000);
	CHECK(pread(out, buf, 10, 50000) == 10);
	for (unsigned i = 0; i < 10; i++)
		CHECK((unsigned char)buf[i] == byte_at(1, 100 + i));
	CHECK(write(out, "end", 3) == 3 && size_of(out) == 50013);
	CHECK(pipe(pipes) == 0 && lseek(in, 7, SEEK_SET) == 7);
	put(in, 2, 7, 20);
	CHECK(splice(in, NULL, pipes[1], NULL, 20, 0) == 20 && lseek(in, 0, SEEK_CUR) == 27 && read(pipes[0], buf, 64) == 20);
	for (unsigned i = 0; i < 20; i++)
		CHECK((unsigned char)buf[i] == byte_at(2, 7 + i));
	CHECK(write(pipes[1], "spliced", 7) == 7 && lseek(out, 0, SEEK_SET) == 0);
	CHECK(splice(pipes[0], NULL, out, NULL, 7, 0) == 7 && lseek(out, 0, SEEK_CUR) == 7);
	CHECK(pread(out, buf, 8, 0) == 8 && memcmp(buf, "spliced", 7) == 0 && (unsigned char)buf[7] == byte_at(1, 7));
	return 0;
}
