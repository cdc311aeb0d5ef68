/* SPDX-License-Identifier: Apache-2.0 */
#include "base/protect.h"

#include <errno.h>

#include "base/sys.h"

/* Read before each store to persistent memory, written once. */
uint32_t sfs_protect_shift;

#if defined(__x86_64__)

static int key;

bool sfs_protect_start(void)
{
	long r;

	if (sfs_protect_shift)
		return true;
	/* EINVAL, ENOSPC: no keys here, or the program has all of them. Key 0 is what everything else has. */
	r = sys_call2(SYS_pkey_alloc, 0, SFS_KEY_CLOSED);
	if (r <= 0)
		return false;
	key = (int)r;
	__atomic_store_n(&sfs_protect_shift, 2 * (uint32_t)r, __ATOMIC_RELEASE);
	return true;
}

bool sfs_protect_possible(void)
{
	const long r = sys_call2(SYS_pkey_alloc, 0, SFS_KEY_CLOSED);

	if (r > 0)
		sys_call1(SYS_pkey_free, r);
	return r > 0;
}

static int with_key(void *p, uint64_t n, int prot, int k)
{
	return sfs_protect_shift ? (int)sys_call4(SYS_pkey_mprotect, (long)p, (long)n, prot, k) : 0;
}

int sfs_protect(void *p, uint64_t n, int prot)
{
	return with_key(p, n, prot, key);
}

int sfs_unprotect(void *p, uint64_t n, int prot)
{
	return with_key(p, n, prot, 0);
}

#else

bool sfs_protect_start(void)
{
	return false;
}

bool sfs_protect_possible(void)
{
	return false;
}

int sfs_protect(void *p, uint64_t n, int prot)
{
	(void)p, (void)n, (void)prot;
	return 0;
}

int sfs_unprotect(void *p, uint64_t n, int prot)
{
	(void)p, (void)n, (void)prot;
	return 0;
}

#endif
