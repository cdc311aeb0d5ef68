/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "gate.h"

#define CALL(name, kind, fd1, fd2, path)                                                                                       \
	{                                                                                                                      \
#name, SYS_##name, kind, {fd1, fd2 }, path                                                                     \
	}

const struct gate_call gate_calls[] = {
	CALL(read, GATE_READ, 0, -1, -1),      CALL(pread64, GATE_READ, 0, -1, -1),  CALL(readv, GATE_READ, 0, -1, -1),
	CALL(preadv, GATE_READ, 0, -1, -1),    CALL(preadv2, GATE_READ, 0, -1, -1),  CALL(write, GATE_WRITE, 0, -1, -1),
	CALL(pwrite64, GATE_WRITE, 0, -1, -1), CALL(writev, GATE_WRITE, 0, -1, -1),  CALL(pwritev, GATE_WRITE, 0, -1, -1),
	CALL(pwritev2, GATE_WRITE, 0, -1, -1), CALL(sendfile, GATE_COPY, 0, 1, -1),  CALL(copy_file_range, GATE_COPY, 0, 2, -1),
	CALL(splice, GATE_COPY, 0, 2, -1),     CALL(ioctl, GATE_COPY, 0, 2, -1),     CALL(mmap, GATE_MAP, 4, -1, -1),
	CALL(ftruncate, GATE_CUT, 0, -1, -1),  CALL(fallocate, GATE_CUT, 0, -1, -1), CALL(truncate, GATE_CUT, -1, -1, 0),
	CALL(open, GATE_CUT, -1, -1, 0),       CALL(creat, GATE_CUT, -1, -1, 0),     CALL(openat, GATE_CUT, -1, -1, 1),
};
const unsigned gate_ncalls = sizeof(gate_calls) / sizeof(gate_calls[0]);

const struct gate_call *gate_find(long nr)
{
	for (unsigned i = 0; i < gate_ncalls; i++)
		if (gate_calls[i].nr == nr)
			return &gate_calls[i];
	return NULL;
}

bool gate_concerns(const struct gate_call *c, const uint64_t arg[6])
{
	switch (c->nr) {
	case SYS_mmap:
		return !(arg[3] & MAP_ANONYMOUS);
	case SYS_open:
		return arg[1] & O_TRUNC;
	case SYS_openat:
		return arg[2] & O_TRUNC;
	case SYS_ioctl:
		return (uint32_t)arg[1] == FICLONE; /* FICLONERANGE has its second descriptor in memory */
	default:
		return true;
	}
}

int gate_install(void)
{
	struct sock_filter code[3 + 2 * sizeof(gate_calls) / sizeof(gate_calls[0]) + 1];
	struct sock_fprog program = {.filter = code};
	unsigned n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 2 * gate_ncalls + 1);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < gate_ncalls; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)gate_calls[i].nr, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = (unsigned short)n;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}
