/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that was closed at the fork, though a snapshot of it was kept, is like any other in the child: what the parent has written to it since
 * is in it before the child cuts or replaces it by name, and does not come back later.
 */
#include "peek.h"

enum { OLD = 5 * BLOCK + 77, MORE = 3 * BLOCK + 5, CUT = 2 * BLOCK + 9 };

enum way { BY_NAME, BY_STREAM, BY_OPEN, BY_LOOKING, WAYS };

static void child(enum way way, int in, int out)
{
	FILE *stream;
	struct stat st;
	int fd;

	hear(in);
	switch (way) {
	case BY_NAME:
		CHECK(truncate("f", CUT) == 0);
		break;
	case BY_STREAM:
		stream = fopen("f", "w");
		CHECK(stream && fputs("new", stream) >= 0 && fclose(stream) == 0);
		break;
	case BY_OPEN:
		fd = open("f", O_WRONLY | O_TRUNC);
		CHECK(fd >= 0 && write(fd, "new", 3) == 3 && close(fd) == 0);
		break;
	default:
		CHECK(stat("f", &st) == 0 && st.st_size == OLD + MORE);
	}
	tell(out);
	hear(in);
	exit(0);
}

int main(void)
{
	splitfs_flags(SPLITFS_COPY);
	for (enum way way = 0; way < WAYS; way++) {
		int there[2], back[2], fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
		const void *p;
		pid_t pid;

		put(fd, 1, 0, OLD);
		p = snapshot(fd, 1, 0, OLD);
		CHECK(close(fd) == 0 && pipe(there) == 0 && pipe(back) == 0);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child(way, there[0], back[1]);
		fd = open("f", O_RDWR);
		put(fd, 1, OLD, MORE);
		tell(there[1]);
		hear(back[0]);
		if (way == BY_NAME || way == BY_LOOKING) {
			const off_t left = way == BY_NAME ? CUT : OLD + MORE;

			CHECK(size_of(fd) == left);
			expect(fd, 1, 0, (size_t)left);
			put(fd, 2, left, MORE);
			expect(fd, 2, left, MORE);
		} else {
			char word[4] = "";

			CHECK(size_of(fd) == 3 && pread(fd, word, 4, 0) == 3 && strcmp(word, "new") == 0);
		}
		expect_snapshot(p, 1, 0, OLD);
		CHECK(close(fd) == 0 && splitfs_unpeek(p) == 0);
		tell(there[1]);
		CHECK(status_of(pid) == 0);
	}
	return 0;
}
