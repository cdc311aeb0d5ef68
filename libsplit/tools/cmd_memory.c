/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs memory: what the memory of this machine promises when the power fails. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "control/memory.h"
#include "json.h"

static const char help[] =
	"Usage: splitfs memory [--json]\n"
	"\n"
	"Show every region of persistent memory of this machine, and volatile memory behind /dev/dax: what it is, and whether\n"
	"what was stored there outlives a power failure.\n"
	"\n"
	"  eadr      durable from the caches on: nothing has to be flushed\n"
	"  adr       durable from the memory controller on\n"
	"  gpf       CXL memory whose device and port take part in the global persistent flush\n"
	"  unstated  persistent, and nobody says that stores survive: not counted as durable\n"
	"  virtio    virtio-pmem: durable only after fsync\n"
	"  volatile  main memory or CXL memory that shows itself as persistent, or an NVDIMM that is not armed\n"
	"\n"
	"SPLITFS_PLATFORM=adr or =eadr in the environment says what the platform does, where it does not say so itself. An\n"
	"agent, 'splitfs run' and 'splitfs status' heed it too.\n"
	"\n"
	"  --json       print one JSON object\n"
	"  --root DIR   look at DIR/sys and DIR/proc instead of this machine's\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static void print_json(const struct sfs_memory_range *v, size_t n)
{
	struct json j = {.out = stdout};

	json_object(&j, NULL);
	json_array(&j, "ranges");
	for (size_t i = 0; i < n; i++) {
		json_object(&j, NULL);
		json_string(&j, "name", v[i].name);
		json_string(&j, "provider", v[i].provider);
		json_number(&j, "bytes", v[i].bytes);
		json_string(&j, "memory", sfs_memory_word(v[i].memory));
		json_bool(&j, "durable", sfs_memory_durable(v[i].memory));
		json_string(&j, "why", v[i].why);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	putchar('\n');
}

static void print_text(const struct sfs_memory_range *v, size_t n)
{
	if (n == 0)
		printf("The kernel shows no persistent memory on this machine.\n");
	for (size_t i = 0; i < n; i++)
		cli_paragraph(stdout, 44, "%-10s %-9s %-8s %8llu MiB  %s", v[i].name, sfs_memory_word(v[i].memory),
			      sfs_memory_durable(v[i].memory) ? "durable" : "", (unsigned long long)(v[i].bytes >> 20),
			      v[i].why);
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, OPT_JSON},
						{"root", required_argument, NULL, OPT_ROOT},
						{0}};
	struct sfs_memory_range *ranges = NULL;
	struct sfs_machine machine;
	struct sfs_why why = {0};
	const char *root = "";
	bool as_json = false;
	size_t n = 0;
	int o;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 'h':
			return cli_help(&cmd_memory);
		case OPT_JSON:
			as_json = true;
			break;
		case OPT_ROOT:
			root = optarg;
			break;
		default:
			return cli_usage(&cmd_memory, "unknown option: %s", argv[optind - 1]);
		}
	}
	if (argc != optind)
		return cli_usage(&cmd_memory, "memory takes no arguments");
	if (sfs_machine_here(&machine, &why))
		return cli_fail("%s", why.text);
	machine.root = root;
	if (sfs_memory_list(&machine, &ranges, &n))
		return cli_fail("out of memory");
	if (as_json)
		print_json(ranges, n);
	else
		print_text(ranges, n);
	free(ranges);
	return fflush(stdout) ? cli_fail("standard output can't be written") : 0;
}

const struct command cmd_memory = {"memory", "show what this machine's memory promises when the power fails", help, run};
