/* SPDX-License-Identifier: Apache-2.0 */
/* Thread cancellation: noticed here, acted upon in the calls that we serve. */
#include "preload.h"

#include <pthread.h>

int pl_cancel_used;

void pl_test_cancel(void)
{
	REAL(pthread_testcancel)();
}

WRAPPER int w_pthread_cancel(pthread_t thread)
{
	__atomic_store_n(&pl_cancel_used, 1, __ATOMIC_RELAXED);
	sfs_handler_installed(); /* the C library's, for threads that are cancelled at once */
	return REAL(pthread_cancel)(thread);
}
EXPORT(pthread_cancel, w_pthread_cancel);
