/* SPDX-License-Identifier: Apache-2.0 */
/* Short names for what is on every path. */
#ifndef SFS_ATOMIC_H
#define SFS_ATOMIC_H

#define likely(x)	    __builtin_expect(!!(x), 1)
#define unlikely(x)	    __builtin_expect(!!(x), 0)
#define load_acquire(p)	    __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

#endif
