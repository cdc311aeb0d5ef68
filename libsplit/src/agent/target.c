/* SPDX-License-Identifier: Apache-2.0 */
/* The way back to a file, which recovery and the marks on inodes need when nobody has it open any more. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/internal.h"

void target_keep(struct agent *a, struct target *t, int fd)
{
	char path[32];
	int mount;

	if (t->fd >= 0 || t->handle)
		return;
	if (a->by_handle) {
		t->handle = calloc(1, sizeof(*t->handle) + MAX_HANDLE_SZ);
		if (!t->handle)
			return;
		t->handle->handle_bytes = MAX_HANDLE_SZ;
		if (name_to_handle_at(fd, "", t->handle, &mount, AT_EMPTY_PATH) == 0) {
			struct file_handle *fit = realloc(t->handle, sizeof(*fit) + t->handle->handle_bytes);

			t->handle = fit ? fit : t->handle;
			return;
		}
		free(t->handle);
		t->handle = NULL;
	}
	/* Not for writing where we can open it so when that is needed: nobody could execute it meanwhile. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
		t->fd = open(path, O_PATH | O_CLOEXEC);
	if (t->fd < 0)
		t->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int target_copy(struct target *t, const struct target *from)
{
	const size_t size = from->handle ? sizeof(*from->handle) + from->handle->handle_bytes : 0;

	*t = (struct target){from->ino, from->gen, -1, NULL};
	if (from->handle) {
		t->handle = malloc(size);
		if (!t->handle)
			return -ENOMEM;
		memcpy(t->handle, from->handle, size);
		return 0;
	}
	t->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 3);
	return t->fd < 0 ? -errno : 0;
}

int target_open(const struct agent *a, const struct target *t, bool *mine)
{
	int fd;

	*mine = t->handle;
	if (!t->handle)
		return t->fd >= 0 ? t->fd : -EBADF;
	fd = open_by_handle_at(a->root.fd, t->handle, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void target_close(struct target *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	free(t->handle);
	t->handle = NULL;
}
