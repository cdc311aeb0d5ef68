/* SPDX-License-Identifier: Apache-2.0 */
/* Parent and children append to one O_APPEND description and to descriptions of their own: no line is lost or torn. */
#include "check.h"

enum { CHILDREN = 4, LINES = 500 };

static void lines(int fd, int who)
{
	char line[32];

	for (int i = 0; i < LINES; i++) {
		int n = snprintf(line, sizeof(line), "%d %06d......\n", who, i);

		CHECK(write(fd, line, (size_t)n) == n);
	}
}

int main(void)
{
	int shared = open("f", O_RDWR | O_CREAT | O_APPEND, 0644), next[CHILDREN + 1] = {0}, total = 0;
	pid_t pid[CHILDREN];
	char line[64];
	FILE *f;

	for (int c = 0; c < CHILDREN; c++) {
		if ((pid[c] = fork()) == 0) {
			lines(c & 1 ? shared : open("f", O_WRONLY | O_APPEND), c);
			exit(0);
		}
	}
	lines(shared, CHILDREN);
	for (int c = 0; c < CHILDREN; c++)
		CHECK(status_of(pid[c]) == 0);
	CHECK(size_of(shared) == (CHILDREN + 1) * LINES * 15);
	CHECK((f = fopen("f", "r")) != NULL);
	for (; fgets(line, sizeof(line), f); total++) {
		int who, i;

		CHECK(sscanf(line, "%d %d......", &who, &i) == 2 && strlen(line) == 15 && who >= 0 && who <= CHILDREN);
		CHECK(i == next[who]);
		next[who]++;
	}
	CHECK(total == (CHILDREN + 1) * LINES);
	return 0;
}
