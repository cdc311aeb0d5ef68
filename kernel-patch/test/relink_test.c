// SPDX-License-Identifier: GPL-2.0
/*
 * Conformance of EXT4_IOC_RELINK and EXT4_IOC_CHANGES. Each case runs in a process of its own and prints one TAP line.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"

#ifndef STATX_ATTR_DAX
#define STATX_ATTR_DAX 0x00200000
#endif

static const struct test_case *const all_cases[] = {semantics_cases, edge_cases,   refusal_cases,  mapping_cases,
						    space_cases,     limit_cases,  exchange_cases, fault_cases,
						    random_cases,    changes_cases,  changes_race_cases};
#define LISTS (sizeof(all_cases) / sizeof(all_cases[0]))

static void usage(FILE *to)
{
	fprintf(to,
		"Usage: relink_test [OPTION]... DIR\n\n"
		"Tests the relink call of the ext4 that DIR is on; DIR is used for files. Some cases need root.\n\n"
		"  --dax            files have to be DAX (by default what they are is taken as given)\n"
		"  --unsupported    the file system is one that relink cannot work on (bigalloc, no journal)\n"
		"  --read-only      make the file system note an error (errors=remount-ro) and test that nothing moves then\n"
		"  --crash          the cases that end with a shutdown of the file system, one (--only) at a time\n"
		"  --crashed        what they left, when the file system has been mounted again\n"
		"  --break WHAT     relink so that it cannot be undone: NUMBER,KINDS,CALL,AGAIN, the call'th call of these "
		"kinds fails, and the\n"
		"                   again'th behind it; skipped where there are not so many\n"
		"  --broken HOW     what that left, when the file system has been checked and mounted again: undone, or "
		"damaged\n"
		"  --may-skip LIST  names with commas between them: what else is skipped has failed\n"
		"  --only NAME      run this case; may be repeated\n"
		"  --without NAME   leave this case out; may be repeated\n"
		"  --seed N         of the random test [1]\n"
		"  --ops N          operations of the random test [400]\n"
		"  --list           print the names of the cases\n");
}

/* Runs a case; 0, 1 or SKIPPED. */
static int run_case(const struct test_case *c)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(1);
	}
	if (pid == 0) {
		c->run();
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid) {
		perror("waitpid");
		exit(1);
	}
	/* What a failed case may leave behind would fail the next one. */
	fill_away();
	sysfs_write("simulate_fail", 0);
	fail_call(0, 0, 0);
	if (WIFSIGNALED(status)) {
		printf("# killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
		return 1;
	}
	return WEXITSTATUS(status);
}

/* Is the name among those with commas between them? */
static bool is_listed(const char *list, const char *name)
{
	const size_t length = strlen(name);

	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
		if (!strncmp(list, name, length) && (list[length] == ',' || !list[length]))
			return true;
	return false;
}

/* Finds out what DIR is; the working directory becomes DIR. */
static void look_around(const char *dir, bool want_dax)
{
	struct statx sx;
	char link[PATH_MAX], path[64];
	ssize_t n;

	if (chdir(dir)) {
		fprintf(stderr, "relink_test: cannot enter %s: %s\n", dir, strerror(errno));
		exit(2);
	}
	env.dir = dir;
	close(open("probe", O_RDWR | O_CREAT, 0600));
	if (statx(AT_FDCWD, "probe", 0, STATX_BASIC_STATS, &sx)) {
		perror("relink_test: statx");
		exit(2);
	}
	unlink("probe");
	env.dax = sx.stx_attributes & STATX_ATTR_DAX;
	env.block = sx.stx_blksize;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", sx.stx_dev_major, sx.stx_dev_minor);
	n = readlink(path, link, sizeof(link) - 1);
	if (n > 0) {
		link[n] = 0;
		snprintf(env.sysfs, sizeof(env.sysfs), "/sys/fs/ext4_splitfs/%s", strrchr(link, '/') + 1);
	}
	printf("# %s: %s, blocks of %lu bytes, seed %lu\n", dir, env.dax ? "DAX" : "page cache", env.block,
	       (unsigned long)env.seed);
	if (want_dax && !env.dax) {
		fprintf(stderr, "relink_test: files in %s are not DAX\n", dir);
		exit(1);
	}
}

/* All that can be tested where the call is refused altogether. */
static void unsupported(void)
{
	struct file donor = file_new("donor", 4 * env.block), target = file_new("target", 4 * env.block);
	struct ext4_relink r = {.flags = EXT4_RELINK_QUERY};

	check(relink_call(target.fd, &r) == EOPNOTSUPP, "query");
	file_write(&donor, 0, 4 * env.block, 1);
	r = relink_args(&donor, 0, 0, 4 * env.block);
	check(relink_checked(&target, &donor, &r) == EOPNOTSUPP, "relink");
}

/* An error has made the file system read-only under open descriptors. */
static void read_only(void)
{
	struct file donor = file_new("donor", 4 * env.block), target = file_new("target", 4 * env.block);
	struct ext4_relink r;
	int err;

	file_write(&donor, 0, 4 * env.block, 1);
	sync();
	check(sysfs_write("trigger_fs_error", 1), "cannot make the file system note an error");
	r = relink_args(&donor, 0, 0, 4 * env.block);
	err = relink_call(target.fd, &r);
	/* Newer kernels shut such a file system down, for reading too. */
	check(err == EROFS || err == EIO, "relink: error %d", err);
	check(r.moved == 0 && file_stat(&target).st_size == 0 && file_stat(&target).st_blocks == 0, "something was moved");
	r.flags = EXT4_RELINK_QUERY;
	check(relink_call(target.fd, &r) == 0, "query");
}

static const char *broken_how;

static void breaking(void)
{
	unsigned int number, kinds, call, again;

	check(sscanf(broken_how, "%u,%i,%u,%u", &number, (int *)&kinds, &call, &again) == 4, "--break %s", broken_how);
	break_relink(number, kinds, call, again);
}

static void broken(void)
{
	look_at_broken(!strcmp(broken_how, "undone"));
}

static const struct test_case break_cases[] = {{"broken_relink", breaking}, {0}};
static const struct test_case broken_cases[] = {{"after_a_broken_relink", broken}, {0}};
static const struct test_case read_only_cases[] = {{"read_only_file_system", read_only}, {0}};
static const struct test_case unsupported_cases[] = {{"unsupported_file_system", unsupported}, {0}};

int main(int argc, char **argv)
{
	enum { DAX = 256, UNSUPPORTED, READ_ONLY, CRASH, CRASHED, BREAK, BROKEN, MAY_SKIP, WITHOUT, ONLY, SEED, OPS, LIST };
	static const struct option options[] = {{"dax", no_argument, 0, DAX},
						{"unsupported", no_argument, 0, UNSUPPORTED},
						{"only", required_argument, 0, ONLY},
						{"read-only", no_argument, 0, READ_ONLY},
						{"crash", no_argument, 0, CRASH},
						{"crashed", no_argument, 0, CRASHED},
						{"break", required_argument, 0, BREAK},
						{"broken", required_argument, 0, BROKEN},
						{"may-skip", required_argument, 0, MAY_SKIP},
						{"without", required_argument, 0, WITHOUT},
						{"seed", required_argument, 0, SEED},
						{"ops", required_argument, 0, OPS},
						{"list", no_argument, 0, LIST},
						{"help", no_argument, 0, 'h'},
						{0}};
	const struct test_case *const unsupported_list[] = {unsupported_cases}, *const read_only_list[] = {read_only_cases};
	const struct test_case *const crash_list[] = {crash_cases}, *const crashed_list[] = {crashed_cases};
	const struct test_case *const break_list[] = {break_cases}, *const broken_list[] = {broken_cases};
	const struct test_case *const *lists = all_cases;
	size_t nlists = LISTS, nonly = 0, nwithout = 0, i, k;
	int option, number = 0, failed = 0, skipped = 0;
	const char *only[64], *without[64], *may_skip = NULL;
	const struct test_case *c;
	bool want_dax = false;
	time_t begin;

	setvbuf(stdout, NULL, _IOLBF, 0);
	env.seed = 1;
	env.ops = 400;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case DAX:
			want_dax = true;
			break;
		case UNSUPPORTED:
			lists = unsupported_list;
			nlists = 1;
			break;
		case READ_ONLY:
			lists = read_only_list;
			nlists = 1;
			break;
		case CRASH:
			lists = crash_list;
			nlists = 1;
			break;
		case CRASHED:
			lists = crashed_list;
			nlists = 1;
			break;
		case BREAK:
		case BROKEN:
			lists = option == BREAK ? break_list : broken_list;
			nlists = 1;
			broken_how = optarg;
			break;
		case MAY_SKIP:
			may_skip = optarg;
			break;
		case WITHOUT:
			if (nwithout < sizeof(without) / sizeof(without[0]))
				without[nwithout++] = optarg;
			break;
		case ONLY:
			if (nonly < sizeof(only) / sizeof(only[0]))
				only[nonly++] = optarg;
			break;
		case SEED:
			env.seed = strtoull(optarg, NULL, 0);
			break;
		case OPS:
			env.ops = strtoul(optarg, NULL, 0);
			break;
		case LIST:
			for (i = 0; i < LISTS; i++)
				for (c = all_cases[i]; c->name; c++)
					puts(c->name);
			return 0;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind + 1 != argc) {
		usage(stderr);
		return 2;
	}
	look_around(argv[optind], want_dax);
	for (i = 0; i < nlists; i++) {
		for (c = lists[i]; c->name; c++) {
			int result;

			for (k = 0; k < nonly && strcmp(only[k], c->name); k++)
				;
			if (nonly && k == nonly)
				continue;
			for (k = 0; k < nwithout && strcmp(without[k], c->name); k++)
				;
			if (k < nwithout)
				continue;
			begin = time(NULL);
			result = run_case(c);
			if (result == SKIPPED && may_skip && !is_listed(may_skip, c->name)) {
				printf("# skipped, which must not happen here\n");
				result = 1;
			}
			number++;
			failed += result != 0 && result != SKIPPED;
			skipped += result == SKIPPED;
			printf("%s %d - %s%s (%ld s)\n", result && result != SKIPPED ? "not ok" : "ok", number, c->name,
			       result == SKIPPED ? " # SKIP" : "", (long)(time(NULL) - begin));
		}
	}
	printf("1..%d\n# %d cases, %d failed, %d skipped\n", number, number, failed, skipped);
	if (!number) {
		fprintf(stderr, "relink_test: no such case\n");
		return 2;
	}
	return failed ? 1 : 0;
}
