/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coverage gate: runs a program, stops every process of it before each system call that moves a file's data, and looks into
 * the volume's logs: had anybody staged bytes of that file at that moment? The library's own calls are told by where they are made
 * from and by their descriptor. Nothing has to be built into the library for this: what it has staged is what its logs say.
 */
#ifndef GATE_H
#define GATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* --- calls.c: which system calls move a file's data, and whose */

enum gate_kind { GATE_READ, GATE_WRITE, GATE_COPY, GATE_MAP, GATE_CUT, GATE_KINDS };

struct gate_call {
	const char *name;
	long nr;
	enum gate_kind kind;
	signed char fd[2]; /* which arguments are descriptors; -1: none */
	signed char path;  /* which argument is a path; -1: none */
};

extern const struct gate_call gate_calls[];
extern const unsigned gate_ncalls;

const struct gate_call *gate_find(long nr);
/* Does it concern a file's data with these arguments at all? (An anonymous mmap does not, nor an open that doesn't truncate.) */
bool gate_concerns(const struct gate_call *c, const uint64_t arg[6]);
/* In the child, before exec: stop at these calls and at no others. 0 or a negative errno value. */
int gate_install(void);

/* --- staged.c: what the logs say */

int gate_open_volume(const char *root);
dev_t gate_device(void);
/* Bytes that complete calls have staged for the file and that are not in it yet. */
uint64_t gate_staged(uint64_t ino, uint32_t gen);

#endif
