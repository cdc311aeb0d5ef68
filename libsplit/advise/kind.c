/* SPDX-License-Identifier: Apache-2.0 */
#include "kind.h"

#include <elf.h>
#include <unistd.h>

#include "base/sys.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif
#define SCRIPTS 4 /* interpreters that are scripts themselves */

/* Without a dynamic linker nothing is preloaded. */
static enum adv_program elf_kind(int fd, const Elf64_Ehdr *head)
{
	if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != MACHINE)
		return ADV_OTHER_MACHINE;
	for (unsigned i = 0; i < head->e_phnum; i++) {
		Elf64_Phdr ph;

		if (sys_pread(fd, &ph, sizeof(ph), (off_t)(head->e_phoff + i * sizeof(ph))) != sizeof(ph) ||
		    ph.p_type == PT_INTERP)
			return ADV_NO_PROGRAM;
	}
	return ADV_STATIC;
}

/* The dynamic linker ignores LD_PRELOAD in a program that gives its user more rights. */
static bool privileged(int fd)
{
	char caps[32];
	struct stat st;

	return (sys_fstat(fd, &st) == 0 && st.st_mode & (S_ISUID | S_ISGID)) ||
	       sys_call4(SYS_fgetxattr, fd, (long)"security.capability", (long)caps, sizeof(caps)) > 0;
}

/* "#!INTERPRETER ...": its path, in place; NULL when there is none. */
static const char *interpreter(char *text, ssize_t n)
{
	ssize_t from = 2, to;

	while (from < n && (text[from] == ' ' || text[from] == '\t'))
		from++;
	for (to = from; to < n && text[to] > ' ';)
		to++;
	if (to == from || to == n)
		return NULL;
	text[to] = 0;
	return text + from;
}

static enum adv_program kind(int dirfd, const char *path, int scripts)
{
	union {
		Elf64_Ehdr head;
		char text[256];
	} u;
	const int fd = sys_openat(dirfd, path, O_RDONLY | O_CLOEXEC, 0);
	enum adv_program k = ADV_NO_PROGRAM;
	ssize_t n;

	if (fd < 0)
		return ADV_NO_PROGRAM;
	n = sys_pread(fd, &u, sizeof(u), 0);
	if (n >= (ssize_t)sizeof(u.head) && u.text[0] == 0x7f && u.text[1] == 'E' && u.text[2] == 'L' && u.text[3] == 'F')
		k = privileged(fd) ? ADV_PRIVILEGED : elf_kind(fd, &u.head);
	else if (n > 2 && u.text[0] == '#' && u.text[1] == '!' && scripts > 0) {
		const char *by = interpreter(u.text, n);

		k = by ? kind(AT_FDCWD, by, scripts - 1) : ADV_NO_PROGRAM;
	}
	sys_close(fd);
	return k;
}

enum adv_program adv_kind(int dirfd, const char *path)
{
	return kind(dirfd, path, SCRIPTS);
}
