/* SPDX-License-Identifier: Apache-2.0 */
#include "control/versions.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "versions"

int sfs_refused_write(const struct sfs_root *r, const struct sfs_refused *v)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "speaks %" PRIu32 " %" PRIu32 "\nrefused %" PRIu64 "\n%d %" PRIu32 " %" PRIu32 " %" PRIu64 "\n",
		 v->agent.oldest, v->agent.newest, v->total, v->pid, v->client.oldest, v->client.newest, v->when);
	return sfs_root_note(r, NAME, text);
}

void sfs_refused_read(const struct sfs_root *r, struct sfs_refused *v)
{
	const int fd = openat(r->ctl, NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[160] = "";
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	memset(v, 0, sizeof(*v));
	if (fd >= 0)
		close(fd);
	if (n > 0 &&
	    sscanf(text, "speaks %" SCNu32 " %" SCNu32 " refused %" SCNu64 " %d %" SCNu32 " %" SCNu32 " %" SCNu64,
		   &v->agent.oldest, &v->agent.newest, &v->total, &v->pid, &v->client.oldest, &v->client.newest, &v->when) != 7)
		memset(v, 0, sizeof(*v));
}
