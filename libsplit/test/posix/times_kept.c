/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of the last change that stat has told stays the file's for as long as nobody writes: fsync, close, rename, a second descriptor, and time that
 * passes do not move it. A write does.
 */
#include "check.h"

#include <stdbool.h>

static struct timespec of(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	return st.st_mtim;
}

static bool same(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static void later(void)
{
	usleep(20000);
}

/* Something that is written, and told. */
static struct timespec change(int fd, bool over)
{
	static const char text[5000] = "text";
	const struct timespec was = of(fd);
	struct timespec now;

	later();
	CHECK((over ? pwrite(fd, text, sizeof(text), 0) : write(fd, text, sizeof(text))) == sizeof(text));
	now = of(fd);
	CHECK(now.tv_sec > was.tv_sec || (now.tv_sec == was.tv_sec && now.tv_nsec > was.tv_nsec));
	later();
	return now;
}

int main(void)
{
	for (int over = 0; over < 2; over++) {
		int fd = open("f", O_RDWR | O_CREAT | O_APPEND * !over, 0644), other = open("f", O_RDONLY);
		struct timespec told;
		struct stat st;

		CHECK(fd >= 0 && other >= 0 && write(fd, "begin", 5) == 5);
		told = change(fd, over);
		CHECK(fsync(fd) == 0 && same(of(fd), told));
		told = change(fd, over);
		CHECK(lseek(fd, 0, SEEK_DATA) == 0 && same(of(other), told));
		told = change(fd, over);
		usleep(400000);
		CHECK(same(of(fd), told));
		told = change(fd, over);
		CHECK(rename("f", "g") == 0 && same(of(fd), told) && rename("g", "f") == 0);
		told = change(fd, over);
		CHECK(close(fd) == 0 && same(of(other), told) && close(other) == 0);
		CHECK(stat("f", &st) == 0 && same(st.st_mtim, told));
	}
	return 0;
}
