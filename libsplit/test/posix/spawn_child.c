/* SPDX-License-Identifier: Apache-2.0 */
/* Programs started by posix_spawn, system and fork+exec read and extend what the parent has just written. */
#include "check.h"

#include <spawn.h>

extern char **environ;

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), copy;
	char *const args[] = {"cp", "f", "g", NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;

	put(fd, 1, 0, 200000);
	CHECK(posix_spawnp(&pid, "cp", NULL, NULL, args, environ) == 0 && status_of(pid) == 0);
	CHECK((copy = open("g", O_RDONLY)) >= 0 && size_of(copy) == 200000);
	expect(copy, 1, 0, 200000);
	put(fd, 1, 200000, 100);
	CHECK(system("cmp f g > /dev/null 2>&1") != 0 && system("cp f g && cmp f g") == 0 && size_of(copy) == 200100);
	/* the child writes to our descriptor as its standard output, at our offset */
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "head ", 5) == 5 && posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
	CHECK(posix_spawnp(&pid, "echo", &actions, NULL, (char *const[]){"echo", "from child", NULL}, environ) == 0);
	CHECK(status_of(pid) == 0 && lseek(fd, 0, SEEK_CUR) == 16 && write(fd, "tail", 4) == 4 && ftruncate(fd, 20) == 0);
	expect_file("f", "head from child\ntail");
	if ((pid = vfork()) == 0) {
		execlp("sh", "sh", "-c", "printf more >> f", NULL);
		_exit(127);
	}
	CHECK(status_of(pid) == 0 && size_of(fd) == 24 && lseek(fd, 0, SEEK_CUR) == 20);
	expect_file("f", "head from child\ntailmore");
	return 0;
}
