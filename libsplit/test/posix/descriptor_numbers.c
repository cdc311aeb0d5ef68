/* SPDX-License-Identifier: Apache-2.0 */
/* A process with few files has no descriptor with a high number: forks copy, and close_range walks, all up to the highest. */
#include "check.h"

#include <dirent.h>
#include <sys/resource.h>

int main(void)
{
	struct rlimit limit;
	struct dirent *entry;
	char name[16];
	DIR *all;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int i = 0; i < 20; i++) {
		int fd;

		snprintf(name, sizeof(name), "f%d", i);
		CHECK((fd = open(name, O_RDWR | O_CREAT, 0644)) >= 0);
		put(fd, 1, 0, 5000);
	}
	CHECK((all = opendir("/proc/self/fd")));
	while ((entry = readdir(all)))
		CHECK(atoi(entry->d_name) < 2048);
	CHECK(closedir(all) == 0);
	return 0;
}
