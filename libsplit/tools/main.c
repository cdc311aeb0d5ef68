/* SPDX-License-Identifier: Apache-2.0 */
/* The `splitfs` command: finds the subcommand. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct command *const commands[] = {&cmd_run, &cmd_prepare, &cmd_recover, &cmd_status,
						 &cmd_top, &cmd_memory,	 &cmd_advise,  &cmd_agent};

static void usage(FILE *out)
{
	fputs("Usage: splitfs COMMAND [ARGUMENTS]\n\n"
	      "SplitFS serves the reads and writes of a program inside of its own process.\n\nCommands:\n",
	      out);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(out, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
	fputs("\n'splitfs COMMAND --help' says more. Exit status: 0 success, 1 failure, 2 wrong usage.\n", out);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		usage(stdout);
		return fflush(stdout) ? 1 : 0;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(argc - 1, argv + 1);
	fprintf(stderr, "splitfs: there is no command '%s'; see 'splitfs --help'\n", argv[1]);
	return EXIT_USAGE;
}
