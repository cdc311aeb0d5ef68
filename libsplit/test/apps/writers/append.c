/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char line[600], x[500], said[32];
	const int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (argc != 2 || log < 0)
		return 1;
	memset(x, 'x', sizeof(x));
	for (long n = atol(argv[1]);; n++) {
		const int len = snprintf(line, sizeof(line), "%ld %.*s %ld\n", n, (int)(n * 7919 % 500), x, n);
		const int words = snprintf(said, sizeof(said), "%ld\n", n);

		if (write(log, line, (size_t)len) != len || write(1, said, (size_t)words) != words)
			return 1;
	}
}
