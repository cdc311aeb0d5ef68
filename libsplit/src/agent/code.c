/* SPDX-License-Identifier: Apache-2.0 */
/* Which code of a process makes calls that the library sees: its own, and that of the C library, whose functions it stands before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/enforce.h"

#define LIBRARY "libsplit.so"

static bool begins(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

/* glibc (threads were a library of their own before 2.34), musl, and the dynamic linkers. */
static bool c_library(const char *name)
{
	return begins(name, "libc.so") || begins(name, "libc-") || begins(name, "libc.musl-") || begins(name, "libpthread") ||
	       begins(name, "ld-linux") || begins(name, "ld-musl-") || begins(name, "ld-2.");
}

static void add(struct code *c, const char *line)
{
	unsigned long from, to;
	char execute, path[4096];
	const char *name;

	if (sscanf(line, "%lx-%lx %*c%*c%c%*c %*s %*s %*s %4095[^\n]", &from, &to, &execute, path) != 4 || execute != 'x')
		return;
	name = strrchr(path, '/');
	name = name ? name + 1 : path;
	if (!begins(name, LIBRARY) && !c_library(name))
		return;
	c->library = c->library || begins(name, LIBRARY);
	if (c->n < CODE_SPANS) {
		c->span[c->n].from = from;
		c->span[c->n].to = to;
		c->n++;
	}
}

void code_look(int pid, struct code *c)
{
	char path[64], *line = NULL;
	size_t size = 0;
	FILE *f;

	memset(c, 0, sizeof(*c));
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = pid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return;
	while (getline(&line, &size, f) > 0)
		add(c, line);
	free(line);
	fclose(f);
}

bool code_has(const struct code *c, unsigned long pc)
{
	for (uint32_t i = 0; c->library && i < c->n; i++)
		if (pc >= c->span[i].from && pc <= c->span[i].to)
			return true;
	return false;
}
