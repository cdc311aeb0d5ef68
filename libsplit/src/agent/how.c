/* SPDX-License-Identifier: Apache-2.0 */
/* By which calls files are opened, and which of those open for writing (outsider.c). */
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "agent/internal.h"

static bool flags_write(unsigned long flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

/* openat2: the flags are the first word of what its third argument points to. */
static bool how_writes(int tid, unsigned long how)
{
	uint64_t flags;
	const struct iovec to = {&flags, sizeof(flags)};
	const struct iovec from = {(void *)how, sizeof(flags)}; /* NOLINT(performance-no-int-to-ptr): another process's */

	return process_vm_readv(tid, &to, 1, &from, 1, 0) != (ssize_t)sizeof(flags) || flags_write(flags);
}

#ifdef __x86_64__
/* Numbers of 32-bit programs, which /proc does not tell apart: with us they are of calls that open nothing. */
#define OTHER_OPEN	5
#define OTHER_OPENAT	295
#define OTHER_BY_HANDLE 342
#endif

bool outsider_open_call(long nr)
{
	switch (nr) {
	case SYS_openat:
	case SYS_openat2:
	case SYS_open_by_handle_at:
	case SYS_execve:
	case SYS_execveat:
#ifdef SYS_open
	case SYS_open:
#endif
#ifdef SYS_creat
	case SYS_creat:
#endif
		return true;
	default:
		return false;
	}
}

bool outsider_usual_call(const struct sfs_call *call)
{
#ifdef OTHER_OPEN
	if (call->nr == OTHER_OPEN || call->nr == OTHER_OPENAT || call->nr == OTHER_BY_HANDLE)
		return true;
#endif
	return outsider_open_call(call->nr);
}

/* What is not one of the usual calls (io_uring) may write. */
bool outsider_writes(int tid, const struct sfs_call *call)
{
	switch (call->nr) {
	case SYS_openat:
	case SYS_open_by_handle_at:
		return flags_write(call->arg[2]);
	case SYS_openat2:
		return how_writes(tid, call->arg[2]);
#ifdef SYS_open
	case SYS_open:
		return flags_write(call->arg[1]);
#endif
#ifdef OTHER_OPEN
	case OTHER_OPEN:
		return flags_write(call->arg[1]);
	case OTHER_OPENAT:
	case OTHER_BY_HANDLE:
		return flags_write(call->arg[2]);
#endif
	case SYS_execve:
	case SYS_execveat:
		return false;
	default:
		return true;
	}
}
