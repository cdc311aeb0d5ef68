/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a file once more. The kernel asks the agent before anybody opens a file that somebody may have staged (agent/outsider.c), also
 * when it is us, who are told at once that we may: two switches of processes. Our own ext4 has a call for who has the file open
 * already, by which it is opened without that question and otherwise as by openat (kernel-patch/ext4_reopen.md). It wants a descriptor of
 * the file that the name leads to. Ours of the file that the same name led to last is a good guess: the kernel finds out a wrong one.
 */
#include "files/reopen.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "files/inode.h"
#include "ext4_reopen.h"

#define NAME_BYTES 256u
#define GUESSES	   256u
#define PAGE	   4096u
/* The kernel's O_LARGEFILE: the C library's is 0 where every file may be large. */
#ifdef __aarch64__
#define LARGEFILE 0400000
#else
#define LARGEFILE 0100000
#endif
#define FLAGS (O_ACCMODE | O_APPEND | O_CLOEXEC | LARGEFILE | O_NOCTTY | O_NONBLOCK | O_DSYNC | O_SYNC)

/* Has an ext4 of ours the call? Its module's parameter says so (off by default), and the first try tells us. */
enum { UNKNOWN, POSSIBLE, REFUSED };
static int state;
/*
 * The hash of a name, and below it our descriptor of the file that it has led to. That may have been closed since, or the number is another
 * file's by now: a reference would keep the file for as long as the call waits (a lease, a directory on the network), and the kernel looks
 * anyway.
 */
static uint64_t guesses[GUESSES];

void sfs_reopen_enable(void)
{
	int unknown = UNKNOWN;

	__atomic_compare_exchange_n(&state, &unknown, POSSIBLE, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Eight bytes at p, whose first may lie in one page and the rest in another; none behind a zero. False: they can't be read. */
static __attribute__((noinline)) bool word_across(const char *p, uint64_t *w)
{
	*w = 0;
	for (unsigned i = 0; i < sizeof(*w); i++) {
		if ((uintptr_t)(p + i) % PAGE == 0 && !sys_readable(p + i))
			return false;
		*w |= (uint64_t)(uint8_t)p[i] << 8 * i;
		if (p[i] == 0)
			break;
	}
	return true;
}

/* By words, some of which reach behind the end of the name but never into another page. */
__attribute__((no_sanitize("address"))) uint32_t sfs_reopen_name(int dirfd, const char *path)
{
	const uint64_t ones = ~0ull / 255;
	const char *const end = path + NAME_BYTES;
	/* The last place in the page where a whole word fits. */
	const char *last = (const char *)(((uintptr_t)path | (PAGE - 1)) - (sizeof(uint64_t) - 1));
	uint64_t h = (uint64_t)dirfd, w, ends;

	if (likely(__atomic_load_n(&state, __ATOMIC_RELAXED) != POSSIBLE) || !sys_readable(path))
		return SFS_NAMELESS;
	for (const char *p = path; p < end; p += sizeof(w)) {
		if (likely(p <= last)) {
			memcpy(&w, p, sizeof(w));
		} else {
			if (!word_across(p, &w))
				break;
			last += PAGE;
		}
		/* The lowest bit is that of the first zero byte: numbers are little-endian. */
		ends = (w - ones) & ~w & ones * 128;
		if (ends)
			w &= (ends ^ (ends - 1)) >> 8;
		h = (h ^ w) * SFS_HASH_FACTOR;
		if (ends)
			return (uint32_t)(h >> 32) | 1;
	}
	return SFS_NAMELESS;
}

static uint64_t *place(uint32_t name)
{
	return &guesses[(name >> 1) % GUESSES];
}

void sfs_reopen_note(const struct sfs_inode *in, uint32_t name)
{
	const int fd = __atomic_load_n(&in->fd, __ATOMIC_RELAXED);

	if (name != SFS_NAMELESS && fd >= 0 && in->vol->provider == RELINK_EXT4)
		__atomic_store_n(place(name), (uint64_t)name << 32 | (uint32_t)fd, __ATOMIC_RELAXED);
}

void sfs_reopen_forget(void)
{
	if (__atomic_load_n(&state, __ATOMIC_RELAXED) == POSSIBLE)
		memset(guesses, 0, sizeof(guesses));
}

int sfs_reopen(int dirfd, const char *path, int flags, uint32_t name)
{
	const struct ext4_reopen args = {
		.version = EXT4_REOPEN_VERSION, .flags = (unsigned int)flags, .dirfd = dirfd, .path = (uintptr_t)path};
	const uint64_t guess = __atomic_load_n(place(name), __ATOMIC_RELAXED);
	int fd;

	if (guess >> 32 != name || flags & ~FLAGS) /* nothing is noted for SFS_NAMELESS */
		return SFS_PASS;
	fd = sys_ioctl((int)(uint32_t)guess, EXT4_IOC_REOPEN, (void *)&args);
	if (fd == -ENOTTY)
		__atomic_store_n(&state, REFUSED, __ATOMIC_RELAXED);
	if (fd == -ENOTTY || fd == -EBADF || fd == -ESTALE)
		__atomic_store_n(place(name), 0, __ATOMIC_RELAXED); /* a wrong guess, or a module without the call */
	/* What it does not open openat may, and else has the right error. */
	return fd < 0 ? SFS_PASS : fd;
}
