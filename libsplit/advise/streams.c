/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that stdio writes to a standard stream pass by no wrapper. Where such a stream is a file of the directory its offset tells of them,
 * and what this process has written altogether sets the limit: others may write to the same offset.
 */
#include "core.h"

#include <stddef.h>

extern int fflush(void *file) __attribute__((weak, visibility("default")));

static off_t at[3];
static uint64_t written, counted;

/* The line "wchar: N" of /proc/self/io. */
static uint64_t written_so_far(void)
{
	static const char key[] = "wchar: ";
	char text[512];
	const int fd = sys_openat(AT_FDCWD, "/proc/self/io", O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? 0 : sys_read(fd, text, sizeof(text));
	uint64_t v = 0;
	ssize_t i = 0, k = 0;

	if (fd >= 0)
		sys_close(fd);
	for (; i < n && k < (ssize_t)sizeof(key) - 1; i++)
		k = text[i] == key[k] ? k + 1 : text[i] == key[0];
	for (; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		v = v * 10 + (uint64_t)(text[i] - '0');
	return v;
}

static bool any(void)
{
	return sfs_ours(0) || sfs_ours(1) || sfs_ours(2);
}

static uint64_t seen(void)
{
	const struct adv_cell *c = adv->views[0].kernel[ADV_STREAM];

	return __atomic_load_n(&c[ADV_APPEND].bytes, __ATOMIC_RELAXED) +
	       __atomic_load_n(&c[ADV_OVERWRITE].bytes, __ATOMIC_RELAXED);
}

void adv_streams_begin(void)
{
	if (!any())
		return;
	for (int fd = 0; fd < 3; fd++)
		at[fd] = sfs_ours(fd) ? sys_lseek(fd, 0, SEEK_CUR) : 0;
	written = written_so_far();
	counted = seen();
}

void adv_streams_end(bool flush)
{
	uint64_t moved = 0, wrote, now;

	if (!any())
		return;
	if (flush && fflush)
		fflush(NULL);
	for (int fd = 0; fd < 3; fd++) {
		const off_t pos =
			sfs_ours(fd) && (sfs_known(fd)->flags & O_ACCMODE) != O_RDONLY ? sys_lseek(fd, 0, SEEK_CUR) : 0;

		/* `>F 2>&1` is one offset under two numbers. */
		if (pos > at[fd] && !(fd == 2 && sfs_known(1) && sfs_known(1)->file == sfs_known(2)->file))
			moved += (uint64_t)(pos - at[fd]);
		at[fd] = pos;
	}
	now = written_so_far();
	wrote = now - written < moved ? now - written : moved;
	moved = seen() - counted;
	ADV_ADD(adv->stream_unseen, wrote > moved ? wrote - moved : 0);
	written = now;
	counted = seen();
}
