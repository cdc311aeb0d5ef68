/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the model test. */
#include "model.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] = "Usage: model --mode MODE --work DIR (--splitfs FILE | --preload FILE) [--calls N] [--seed S] "
			    "[--length L] [--only LIST]\n"
			    "Plays random programs of file calls plainly and under the library and compares every result and "
			    "the files left behind.\n"
			    "  --work DIR      an empty directory on the file system to test\n"
			    "  --splitfs FILE  the splitfs command; --preload FILE: the object alone, without an agent\n"
			    "  --calls N       number of calls (default 20000), in programs of L calls each (default 250)\n"
			    "  --seed S        of the first program (default: the time); the next has S + 1\n"
			    "  --only LIST     play only these operations of one program, as printed by a failed run\n"
			    "Exit 0: the same; 1: different (a short program that shows it is printed); 2: wrong usage.\n";

static int fail(const char *message)
{
	fprintf(stderr, "model: %s\n%s", message, usage);
	return 2;
}

/* model play SEED COUNT ONLY [FIRST SLOT...]: what check runs, plainly and under the library. */
static int play_command(int argc, char **argv)
{
	struct play p = {0};

	if (argc != 5 && argc != 6 + SLOTS)
		return fail("play is for the test itself");
	p.seed = strtoull(argv[2], NULL, 10);
	p.count = atoi(argv[3]);
	p.only = strcmp(argv[4], "-") ? argv[4] : NULL;
	for (int i = 0; i < SLOTS; i++)
		p.slots[i] = argc > 6 ? atoi(argv[6 + i]) : -1;
	p.first = argc > 5 ? atoi(argv[5]) : 0;
	return play(&p, argv);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"mode", 1, NULL, 'm'},	   {"work", 1, NULL, 'w'},
						{"splitfs", 1, NULL, 's'}, {"preload", 1, NULL, 'p'},
						{"calls", 1, NULL, 'c'},   {"seed", 1, NULL, 'S'},
						{"length", 1, NULL, 'l'},  {"only", 1, NULL, 'o'},
						{"help", 0, NULL, 'h'},	   {0}};
	struct check c = {.length = 250};
	char self[PATH_MAX], work[PATH_MAX];
	int calls = 20000;
	bool seeded = false;

	if (argc > 1 && strcmp(argv[1], "play") == 0)
		return play_command(argc, argv);
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'm':
			c.mode = optarg;
			break;
		case 'w':
			c.work = optarg;
			break;
		case 's':
			c.splitfs = optarg;
			break;
		case 'p':
			c.preload = optarg;
			break;
		case 'c':
			calls = atoi(optarg);
			break;
		case 'S':
			c.seed = strtoull(optarg, NULL, 10);
			seeded = true;
			break;
		case 'l':
			c.length = atoi(optarg);
			break;
		case 'o':
			c.only = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			return fail("unknown option");
		}
	}
	if (!c.mode || !c.work || !c.splitfs == !c.preload || calls < 1 || c.length < 1 || optind != argc)
		return fail("--mode, --work and one of --splitfs and --preload are needed");
	if (!realpath("/proc/self/exe", self) || !realpath(c.work, work))
		return fail("the work directory does not exist");
	c.self = self;
	c.work = work;
	if (!seeded)
		c.seed = (uint64_t)time(NULL) * 1000;
	c.programs = c.only ? 1 : (calls + c.length - 1) / c.length;
	return check(&c);
}
