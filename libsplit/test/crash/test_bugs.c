/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash bugs that file systems for persistent memory have had, each as a test of its own: the workloads that showed it, in every
 * mode, with every relink provider. docs/crash-testing.md has the table with their sources.
 *
 *   test_bugs [NAME]...
 */
#include <stdio.h>
#include <string.h>

#include "crash/explore.h"
#include "harness.h"

static const struct bug {
	const char *name;
	const char *workloads[8];
} bugs[] = {
	/* SplitFS */
	{"splitfs_59_log_without_fsync", {"a", "nb"}},
	{"splitfs_62_checksum", {"aa", "ea", "za", "y"}},
	{"splitfs_66_recovery_by_inode_number", {"aX", "uX", "XaX", "XfaX", "nbx"}},
	{"splitfs_67_rename_over", {"nR", "nbR", "nBgR", "fnR", "arl"}},
	/* NOVA, NOVA-Fortis */
	{"nova_91_mkdir", {"D", "Df", "DD", "s"}},
	{"nova_94_rename_makes_inode", {"q", "nq", "aq"}},
	{"nova_116_rename_in_two_steps", {"nR", "nBR", "r", "anR"}},
	{"nova_118_write_then_fallocate", {"pF", "uF", "aFF", "pP"}},
	{"nova_119_link_count", {"l", "rl", "ql", "al"}},
	{"nova_lost_write_of_second_descriptor", {"2", "a2", "2a", "22", "a2f", "2fa"}},
	{"nova_truncate_then_fallocate", {"tF", "2tF", "Tt2", "FtF"}},
	{"fortis_unlink_in_part", {"nbx", "nBx", "DD", "X"}},
	/* PMFS, WineFS */
	{"pmfs_8_write_without_fence", {"aa", "nbb", "oo", "wa"}},
	{"pmfs_truncate_under_way", {"t", "at", "Lt", "tt"}},
	{"winefs_1_write_in_strict", {"o", "O", "e", "aO", "aw"}},
	{"winefs_directories_after_journal", {"q", "l", "D", "nR"}},
};

static struct run r;

/* Distinct states, or -1 after a violation. */
static long check(const struct bug *b, struct tally *t)
{
	const struct explore_how how = {.exhaustive = 24, .most = 24, .deep = 100, .stop_at = 1, .seed = test_seed(67)};
	const uint64_t before = t->states;
	bool ok = true;

	for (int i = 0; i < 8 && b->workloads[i]; i++) {
		for (int way = 0; way < 2 * (SFS_STRICT + 1); way++) {
			for (int fs = 0; fs < KERN_FS_KINDS; fs++) {
				r.workload = b->workloads[i];
				r.mode = (enum sfs_mode)(way / 2);
				r.alone = way % 2;
				r.fs = (enum kern_fs)fs;
				r.dax = true;
				if (!fs_worth((enum kern_fs)fs, r.workload))
					continue;
				if (!run_workload(&r))
					FAIL("%s: workload %s makes no sense", b->name, r.workload);
				r.first = 0; /* all of it: the test stands for itself */
				ok &= explore_run(&r, &how) == 0;
			}
		}
	}
	return ok ? (long)(t->states - before) : -1;
}

int main(int argc, char **argv)
{
	struct tally *t = tally_make(1u << 22);
	int failed = 0, n = 0;

	explore_init(t);
	for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
		bool wanted = argc < 2;
		long states;

		for (int k = 1; k < argc; k++)
			wanted |= strcmp(argv[k], bugs[i].name) == 0;
		if (!wanted)
			continue;
		explore_forget();
		states = check(&bugs[i], t);
		n++;
		failed += states < 0;
		fflush(stdout);
		printf("%-6s %-40s %7ld states\n", states < 0 ? "FAILED" : "ok", bugs[i].name, states);
	}
	if (!n)
		FAIL("there is no such bug");
	return failed > 0;
}
