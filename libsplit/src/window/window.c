/* SPDX-License-Identifier: Apache-2.0 */
#include "window/window.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/protect.h"
#include "base/sys.h"
#include "format/layout.h"
#include "pm/huge.h"
#include "pm/map.h"

#define WINDOW_MIN (1ull << 30)
#define WINDOW_MAX (1ull << 44)

void sfs_window_map(struct sfs_window *w, bool dax, bool writable, int fd, uint64_t size)
{
	const uint64_t tried = w->tried;
	uint64_t len = WINDOW_MIN;
	void *p;

	while (len < size * 2 && len < WINDOW_MAX)
		len *= 2;
	w->tried = size;
	if (size == tried || !sfs_window_short(w, size))
		return;
	p = sfs_map_file(dax, len, PROT_READ | (writable ? PROT_WRITE : 0), fd);
	if (writable && !sys_is_err(p) && sfs_protect(p, len, PROT_READ | PROT_WRITE) < 0) {
		sys_munmap(p, len);
		p = (void *)-1l;
	}
	w->base = sys_is_err(p) ? NULL : p;
	w->len = w->base ? len : 0;
	w->populated = w->cold = w->cold_stores = 0;
}

void sfs_window_unmap(struct sfs_window *w)
{
	if (w->base)
		sys_munmap(w->base, w->len);
	w->base = NULL;
	w->len = w->tried = 0;
}

void sfs_window_bar(struct sfs_window *w)
{
	if (w->base)
		sys_mmap(w->base, w->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	w->base = NULL;
	w->len = w->tried = 0;
}

bool sfs_window_dense(struct sfs_window *w, int fd, uint64_t size)
{
	if (!w->dense_known) {
		off_t hole = size ? sys_lseek(fd, 0, SEEK_HOLE) : 0;

		w->dense = hole >= 0 && (uint64_t)hole >= size;
		w->dense_known = true;
	}
	return w->dense;
}

void sfs_window_judge(struct sfs_window *w, int fd, uint64_t size)
{
	struct sfs_layout l;

	if (w->judged && size >= w->judged && size / 2 < w->judged)
		return;
	l = sfs_layout_of(fd, size, 1);
	w->judged = size;
	w->scattered = l.looked > 0 && l.units * SFS_CHUNK_ALIGN * 2 <= l.looked;
	w->written = l.looked == size && !l.unwritten;
}

void sfs_window_resized(struct sfs_window *w, int fd, uint64_t from, uint64_t to)
{
	if (!w->dense_known || from == to)
		return;
	if (!w->dense)
		w->dense_known = false;
	else if (to > from)
		w->dense = sys_lseek(fd, (off_t)from, SEEK_HOLE) >= (off_t)to;
}
