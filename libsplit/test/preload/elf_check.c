/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program: every real function found in the symbol tables must be the one that dlsym finds. */
#include "preload/real.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *pl_table[PL_COUNT];

static const char *const names[] = {
#define FUNCTION(name) #name,
#include "preload/calls.def"
};
enum { COUNT = sizeof(names) / sizeof(names[0]) };

__attribute__((constructor)) static void check(void)
{
	void *by_table[PL_NEXT_MAX];
	int found = 0, bad = 0;

	for (int i = 0; i < COUNT; i++) {
		const int turn = i % PL_NEXT_MAX, left = COUNT - i;
		void *by_dlsym = dlsym(RTLD_NEXT, names[i]);

		if (turn == 0)
			pl_elf_next(&names[i], left < PL_NEXT_MAX ? left : PL_NEXT_MAX, by_table);
		found += by_dlsym != NULL;
		if (by_table[turn] != by_dlsym) {
			fprintf(stderr, "%s: %p in the symbol tables, %p by dlsym\n", names[i], by_table[turn], by_dlsym);
			bad++;
		}
	}
	if (found < 100) {
		fprintf(stderr, "only %d functions found\n", found);
		bad++;
	}
	exit(bad != 0);
}
