/* SPDX-License-Identifier: Apache-2.0 */
#include "fds/table.h"

#include "base/sys.h"
#include "pm/map.h"

#define FDS_MAX	      (1 << 20)
#define CHANGE_YIELDS 100
#define WRITTEN_TRIES 2000 /* a tenth of a second: a handler may be closing what it has interrupted */

struct sfs_ofd **sfs_fds;
int sfs_fds_len;
bool *sfs_fds_fresh;
int *sfs_fds_flags;
uint64_t *sfs_fds_first;
int *sfs_fds_calls;
struct sfs_fdt sfs_fdt;

int sfs_fds_make(void)
{
	void *p = sfs_map_sparse(FDS_MAX * (sizeof(*sfs_fds) + sizeof(*sfs_fds_first) + sizeof(*sfs_fds_flags) +
					    sizeof(*sfs_fds_calls) + sizeof(*sfs_fds_fresh)));

	if (sys_is_err(p))
		return (int)(long)p;
	sfs_fds = p;
	sfs_fds_first = (uint64_t *)(sfs_fds + FDS_MAX);
	sfs_fds_flags = (int *)(sfs_fds_first + FDS_MAX);
	sfs_fds_calls = sfs_fds_flags + FDS_MAX;
	sfs_fds_fresh = (bool *)(sfs_fds_calls + FDS_MAX);
	store_release(&sfs_fds_len, FDS_MAX);
	return 0;
}

/* Keep *max above fd. */
static void reach(int *max, int fd)
{
	int seen = load_acquire(max);

	while (seen < fd && !__atomic_compare_exchange_n(max, &seen, fd, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
}

static void reached(int fd, const struct sfs_ofd *what)
{
	if (what > SFS_PRIVATE)
		reach(&sfs_fdt.fd_max, fd);
	if (what)
		reach(&sfs_fdt.known_max, fd);
}

struct sfs_ofd *sfs_fds_know(int fd, struct sfs_ofd *what)
{
	reached(fd, what);
	return __atomic_exchange_n(&sfs_fds[fd], what, __ATOMIC_ACQ_REL);
}

/* Its thread makes a few calls of the kernel, and at a close relinks the file. */
struct sfs_ofd *sfs_fds_settled(int fd)
{
	struct sfs_ofd *seen = load_acquire(&sfs_fds[fd]);

	for (int i = 0; unlikely(sfs_fds_changing(seen)); i++, seen = load_acquire(&sfs_fds[fd]))
		sys_back_off(i, CHANGE_YIELDS);
	return seen;
}

struct sfs_ofd *sfs_fds_change_from(int fd, struct sfs_ofd *was)
{
	static uintptr_t last;
	const uintptr_t first = (uintptr_t)SFS_FOREIGN + 1, values = (uintptr_t)SFS_PRIVATE - first;
	struct sfs_ofd *change;

	change = (struct sfs_ofd *)(first + __atomic_fetch_add(&last, 1, __ATOMIC_RELAXED) % values);
	reach(&sfs_fdt.known_max, fd);
	return __atomic_compare_exchange_n(&sfs_fds[fd], &was, change, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? change
														  : NULL;
}

struct sfs_ofd *sfs_fds_change(int fd, struct sfs_ofd **was)
{
	struct sfs_ofd *change = NULL;

	do
		*was = sfs_fds_settled(fd);
	while (*was != SFS_PRIVATE && !(change = sfs_fds_change_from(fd, *was)));
	return change;
}

bool sfs_fds_changed(int fd, struct sfs_ofd *change, struct sfs_ofd *what)
{
	reached(fd, what);
	return __atomic_compare_exchange_n(&sfs_fds[fd], &change, what, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void sfs_fds_written(int fd)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (int i = 0; i < WRITTEN_TRIES && unlikely(__atomic_load_n(&sfs_fds_calls[fd], __ATOMIC_SEQ_CST) >= SFS_FIRST_WRITE);
	     i++)
		sys_back_off(i, CHANGE_YIELDS);
}

void sfs_fds_await(void)
{
	for (int fd = 0; fd < sfs_fds_len && fd <= load_acquire(&sfs_fdt.known_max); fd++)
		sfs_fds_settled(fd);
}

void sfs_fds_forget(void)
{
	for (int fd = 0; fd < sfs_fds_len && fd <= sfs_fdt.known_max; fd++) {
		sfs_fds_calls[fd] = 0;
		if (sfs_fds_changing(sfs_fds[fd]))
			sfs_fds[fd] = NULL;
	}
}

void sfs_fds_opened(int fd, int flags)
{
	__atomic_store_n(&sfs_fds_flags[fd], flags & SFS_FIRST_FLAGS, __ATOMIC_RELAXED);
	store_release(&sfs_fds_first[fd], (sfs_fds_first[fd] | SFS_FIRST_INO) + 1);
	reach(&sfs_fdt.fd_max, fd);
	reach(&sfs_fdt.known_max, fd);
	store_release(&sfs_fds_fresh[fd], true);
}

void sfs_fds_private(int fd)
{
	int min = load_acquire(&sfs_fdt.private_min);

	while (min > fd &&
	       !__atomic_compare_exchange_n(&sfs_fdt.private_min, &min, fd, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	reach(&sfs_fdt.private_max, fd);
	store_release(&sfs_fds[fd], SFS_PRIVATE);
}

void sfs_fds_shared(void)
{
	for (int fd = 0; fd <= load_acquire(&sfs_fdt.fd_max); fd++)
		if (sfs_fds_fresh[fd])
			store_release(&sfs_fds_fresh[fd], false);
}
