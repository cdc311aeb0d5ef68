/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program: every real function found in the symbol tables must be the one that dlsym finds. */
#include "preload/real.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *pl_table[PL_REAL_COUNT];

#define NAME_OF(name, fallback) #name,
static const char *const names[] = {PL_REALS(NAME_OF, NAME_OF)};

__attribute__((constructor)) static void check(void)
{
	int found = 0, bad = 0;

	for (int i = 0; i < PL_REAL_COUNT; i++) {
		void *by_table = pl_elf_next(names[i]), *by_dlsym = dlsym(RTLD_NEXT, names[i]);

		found += by_dlsym != NULL;
		if (by_table != by_dlsym) {
			fprintf(stderr, "%s: %p in the symbol tables, %p by dlsym\n", names[i], by_table, by_dlsym);
			bad++;
		}
	}
	if (found < 100) {
		fprintf(stderr, "only %d functions found\n", found);
		bad++;
	}
	exit(bad != 0);
}
