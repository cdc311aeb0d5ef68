// SPDX-License-Identifier: GPL-2.0
/* Quota and full file systems. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "space.h"

#define B env.block

enum { CRUMBS = 16 };

static int quota_call(unsigned int command, int type, unsigned int id, struct if_dqblk *quota)
{
	int dir = open(".", O_RDONLY | O_DIRECTORY), ret;

	check(dir >= 0, "open");
	ret = syscall(SYS_quotactl_fd, dir, QCMD(command, type), id, quota);
	close(dir);
	return ret ? errno : 0;
}

uint64_t quota_used(int type, unsigned int id)
{
	struct if_dqblk quota = {0};
	int err = quota_call(Q_GETQUOTA, type, id, &quota);

	if (err == ENOENT)
		return 0;
	check(err == 0, "reading the quota of %u", id);
	return quota.dqb_curspace;
}

void quota_limit(int type, unsigned int id, uint64_t bytes)
{
	struct if_dqblk quota = {.dqb_bhardlimit = bytes / QIF_DQBLKSIZE, .dqb_valid = QIF_BLIMITS};

	check(quota_call(Q_SETQUOTA, type, id, &quota) == 0, "setting the quota of %u", id);
}

bool has_quota(void)
{
	struct if_dqblk quota;

	return quota_call(Q_GETQUOTA, USRQUOTA, 0, &quota) == 0;
}

void need_quota(void)
{
	if (geteuid())
		skip("needs root");
	if (!has_quota())
		skip("no quota here: %s", strerror(errno));
}

struct file owned(const char *name, unsigned int user, uint64_t blocks)
{
	struct file f = file_new(name, 256 * B);

	check(fchown(f.fd, user, user) == 0, "fchown");
	if (blocks)
		file_write(&f, 0, blocks * B, user);
	fsync(f.fd);
	return f;
}

#define DONOR_OWNER  1001
#define TARGET_OWNER 1002

/* Two files of two owners, and what each of them uses. */
struct pair {
	struct file donor, target;
	uint64_t donor_used, target_used;
};

static struct pair charged_pair(uint64_t donor_blocks, uint64_t target_blocks)
{
	struct pair p;

	need_quota();
	p.donor = owned("donor", DONOR_OWNER, donor_blocks);
	p.target = owned("target", TARGET_OWNER, target_blocks);
	p.donor_used = quota_used(USRQUOTA, DONOR_OWNER);
	p.target_used = quota_used(USRQUOTA, TARGET_OWNER);
	return p;
}

/* Since then the donor's owner has given away `gone` blocks, and the target's has got `come`. */
static void check_charges(const struct pair *p, int64_t gone, int64_t come, const char *when)
{
	const uint64_t donor = quota_used(USRQUOTA, DONOR_OWNER), target = quota_used(USRQUOTA, TARGET_OWNER);

	check(donor == p->donor_used - gone * B, "%s: the donor's owner uses %lu", when, (unsigned long)donor);
	check(target == p->target_used + come * B, "%s: the target's owner uses %lu", when, (unsigned long)target);
}

int relink_as(unsigned int user, struct file *target, struct file *donor, struct ext4_relink *r)
{
	int err;

	check(seteuid(user) == 0, "seteuid");
	err = relink_checked(target, donor, r);
	check(seteuid(0) == 0, "seteuid");
	return err;
}

static void quota_moves_with_blocks(void)
{
	struct pair p = charged_pair(64, 32);
	uint64_t group_used = quota_used(GRPQUOTA, TARGET_OWNER);
	struct ext4_relink r = relink_args(&p.donor, 8 * B, 16 * B, 40 * B);

	check(relink_checked(&p.target, &p.donor, &r) == 0, "relink");
	check_charges(&p, 40, 24, "40 blocks arrive, 16 are replaced");
	check(quota_used(GRPQUOTA, TARGET_OWNER) == group_used + 24 * B, "the target's group");
	check(file_stat(&p.target).st_blocks == (blkcnt_t)(56 * B / 512), "the target's sectors");
	check(file_stat(&p.donor).st_blocks == (blkcnt_t)(24 * B / 512), "the donor's sectors");
	file_free(&p.donor);
	file_free(&p.target);
	sync();
	check_charges(&p, 64, -32, "the files are removed");
}

static void quota_exceeded(void)
{
	struct pair p = charged_pair(64, 32);
	struct ext4_relink r = relink_args(&p.donor, 0, 32 * B, 21 * B);

	quota_limit(USRQUOTA, TARGET_OWNER, p.target_used + 20 * B);
	check(relink_as(TARGET_OWNER, &p.target, &p.donor, &r) == EDQUOT, "21 blocks where 20 are left");
	check_charges(&p, 0, 0, "refused");
	r = relink_args(&p.donor, 0, 31 * B, 21 * B);
	check(relink_as(TARGET_OWNER, &p.target, &p.donor, &r) == 0, "21 blocks, one of them replaced");
	check_charges(&p, 21, 20, "one of 21 replaced");
	quota_limit(USRQUOTA, TARGET_OWNER, 0);
}

/* Moving blocks between one's own files needs no room. */
static void quota_of_one_owner(void)
{
	struct file donor, target;
	struct ext4_relink r;
	uint64_t before;

	need_quota();
	donor = owned("donor", 1003, 64);
	target = owned("target", 1003, 0);
	before = quota_used(USRQUOTA, 1003);
	quota_limit(USRQUOTA, 1003, before);
	r = relink_args(&donor, 0, 0, 64 * B);
	check(relink_as(1003, &target, &donor, &r) == 0, "relink at the limit");
	check(quota_used(USRQUOTA, 1003) == before, "used %lu", (unsigned long)quota_used(USRQUOTA, 1003));
	quota_limit(USRQUOTA, 1003, 0);
}

/* Puts a soft limit below what a user has, with a time left that no call of the kernel would choose. */
static uint64_t above_soft_limit(unsigned int user)
{
	struct if_dqblk quota = {
		.dqb_bsoftlimit = (quota_used(USRQUOTA, user) - B) / QIF_DQBLKSIZE,
		.dqb_btime = time(NULL) + 1000,
		.dqb_valid = QIF_BLIMITS | QIF_BTIME,
	};

	check(quota_call(Q_SETQUOTA, USRQUOTA, user, &quota) == 0, "setting the quota of %u", user);
	return quota.dqb_btime;
}

static uint64_t time_left(unsigned int user)
{
	struct if_dqblk quota = {0};

	check(quota_call(Q_GETQUOTA, USRQUOTA, user, &quota) == 0, "reading the quota of %u", user);
	return quota.dqb_btime;
}

/* Who is above his soft limit before and after has no more time than before. */
static void quota_grace_goes_on(void)
{
	struct file donor, target;
	struct ext4_relink r;
	uint64_t until;
	struct pair p;

	need_quota();
	donor = owned("donor", 1003, 64);
	target = owned("target", 1003, 32);
	until = above_soft_limit(1003);
	r = relink_args(&donor, 0, 32 * B, 64 * B);
	check(relink_as(1003, &target, &donor, &r) == 0, "relink of one's own blocks");
	check(time_left(1003) == until, "one's own blocks: %ld s more", (long)(time_left(1003) - until));
	quota_limit(USRQUOTA, 1003, 0);
	file_free(&donor);
	file_free(&target);
	p = charged_pair(64, 32);
	until = above_soft_limit(TARGET_OWNER);
	r = relink_args(&p.donor, 0, 0, 32 * B);
	check(relink_as(TARGET_OWNER, &p.target, &p.donor, &r) == 0, "as many blocks as are replaced");
	check(time_left(TARGET_OWNER) == until, "replaced: %ld s more", (long)(time_left(TARGET_OWNER) - until));
	quota_limit(USRQUOTA, TARGET_OWNER, 0);
}

static void quota_of_projects(void)
{
	struct fsxattr attributes;
	struct file donor, target;
	struct ext4_relink r;
	uint64_t before;

	need_quota();
	donor = owned("donor", 1001, 64);
	target = owned("target", 1001, 0);
	check(ioctl(target.fd, FS_IOC_FSGETXATTR, &attributes) == 0, "reading attributes");
	attributes.fsx_projid = 77;
	if (ioctl(target.fd, FS_IOC_FSSETXATTR, &attributes))
		skip("no projects here: %s", strerror(errno));
	before = quota_used(PRJQUOTA, 77);
	quota_limit(PRJQUOTA, 77, before + 10 * B);
	r = relink_args(&donor, 0, 0, 11 * B);
	check(relink_as(1001, &target, &donor, &r) == EDQUOT, "11 blocks for a project with 10");
	r = relink_args(&donor, 0, 0, 10 * B);
	check(relink_as(1001, &target, &donor, &r) == 0, "10 blocks for a project with 10");
	check(quota_used(PRJQUOTA, 77) == before + 10 * B, "used %lu", (unsigned long)quota_used(PRJQUOTA, 77));
	quota_limit(PRJQUOTA, 77, 0);
}

/* A failure half way takes the charges back. */
static void quota_after_a_failure(void)
{
	struct pair p = charged_pair(64, 32);
	struct ext4_relink r = relink_args(&p.donor, 0, 16 * B, 64 * B);

	if (!sysfs_write("simulate_fail", 10))
		skip("this module cannot be made to fail (kernel-patch/build --debug makes one)");
	check(relink_checked(&p.target, &p.donor, &r) == EIO, "relink has to fail");
	check_charges(&p, 0, 0, "after the failure");
}

/* Single blocks that the filler cannot have because its tree would need one more. */
static void crumb_name(char name[16], unsigned int i)
{
	snprintf(name, 16, "crumb%u", i);
}

int take_all(int fd)
{
	struct stat st;
	uint64_t step;

	check(fstat(fd, &st) == 0, "fstat");
	for (step = 256 * MIB; step >= B; step /= 2)
		while (fallocate(fd, 0, st.st_size, step) == 0)
			st.st_size += step;
	return errno;
}

void fill_up(void)
{
	int fd = open("filler", O_RDWR | O_CREAT, 0600), crumb = 0;
	struct stat st;
	unsigned int i;
	char name[16];

	check(fd >= 0, "filler");
	take_all(fd);
	for (i = 0; i < CRUMBS && crumb == 0; i++) {
		crumb_name(name, i);
		close(fd);
		fd = open(name, O_RDWR | O_CREAT, 0600);
		check(fd >= 0 && fstat(fd, &st) == 0, "%s", name);
		crumb = st.st_blocks ? 0 : fallocate(fd, 0, 0, B);
	}
	close(fd);
	sync();
}

void fill_away(void)
{
	unsigned int i;
	char name[16];

	unlink("filler");
	for (i = 0; i < CRUMBS; i++) {
		crumb_name(name, i);
		unlink(name);
	}
	sync();
}

/* Nothing is left: what needs no block works, what needs some says so and changes nothing. */
static void full_file_system(void)
{
	unsigned long extents = 800, reserved = 0, i;
	struct file donor = file_new("donor", 2 * extents * B), target = file_new("target", 2 * extents * B);
	struct ext4_relink r;
	struct statvfs vfs;
	int err;

	for (i = 0; i < extents; i++)
		check(fallocate(donor.fd, 0, 2 * i * B, B) == 0, "fallocate");
	file_truncate(&donor, 2 * extents * B);
	file_write(&target, 0, 4 * B, 2);
	fsync(donor.fd);
	fsync(target.fd);
	if (!sysfs_read("reserved_clusters", &reserved) || !sysfs_write("reserved_clusters", 0))
		skip("the reserve cannot be changed");
	fill_up();
	check(statvfs(".", &vfs) == 0, "statvfs");
	note("%lu blocks are free", (unsigned long)vfs.f_bfree);
	r = relink_args(&donor, 0, 0, 2 * extents * B);
	err = relink_checked(&target, &donor, &r);
	check(sysfs_write("reserved_clusters", reserved), "the reserve");
	check(err == ENOSPC, "%lu extents need a tree: error %d", extents, err);
	check(file_blocks(&donor, 0, 2 * extents * B, false) == extents, "the donor lost blocks");
	fill_away();
	r = relink_args(&donor, 0, 0, 2 * extents * B);
	check(relink_checked(&target, &donor, &r) == 0, "with room again");
}

/* The file system's reserve is for cases like this: nothing is free for users, and an append still works. */
static void full_but_for_the_reserve(void)
{
	struct file donor = file_new("donor", 64 * B), target = file_new("target", 64 * B);
	unsigned long reserved;
	struct ext4_relink r;

	if (!sysfs_read("reserved_clusters", &reserved) || reserved < 64)
		skip("there is no reserve");
	file_write(&donor, 0, 64 * B, 1);
	fsync(donor.fd);
	fill_up();
	r = relink_args(&donor, 0, 0, 64 * B);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	fill_away();
}

const struct test_case space_cases[] = {
	{"quota_moves_with_blocks", quota_moves_with_blocks},
	{"quota_exceeded", quota_exceeded},
	{"quota_of_one_owner", quota_of_one_owner},
	{"quota_grace_goes_on", quota_grace_goes_on},
	{"quota_of_projects", quota_of_projects},
	{"quota_after_a_failure", quota_after_a_failure},
	{"full_file_system", full_file_system},
	{"full_but_for_the_reserve", full_but_for_the_reserve},
	{0},
};

void take_errors(const char *how)
{
	check(mount("none", ".", NULL, MS_REMOUNT, how) == 0, "remounting with %s", how);
}
