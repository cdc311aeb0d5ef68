// SPDX-License-Identifier: GPL-2.0
/* What relink refuses, with which error, and that nothing changes then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <linux/fsverity.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <unistd.h>

#include "testlib.h"

#define B env.block

static struct file donor, target;

static void two_files(void)
{
	donor = file_new("donor", 8 * B);
	target = file_new("target", 16 * B);
	file_write(&donor, 0, 8 * B, 1);
	file_write(&target, 0, 4 * B + 5, 2);
}

static struct ext4_relink good(void)
{
	return relink_args(&donor, 0, 8 * B, 4 * B);
}

/* Makes the call, expects an error and that both files are what they were. */
static void refused(int expected, struct ext4_relink r, const char *what)
{
	int err = relink_call(target.fd, &r);

	check(err == expected, "%s: error %d (%s), not %d (%s)", what, err, strerror(err), expected, strerror(expected));
	file_verify(&target, what);
	file_verify(&donor, what);
}

static void bad_structure(void)
{
	struct ext4_relink r;

	two_files();
	r = good();
	r.version = 0;
	refused(EINVAL, r, "version 0");
	r.version = EXT4_RELINK_VERSION + 1;
	refused(EINVAL, r, "a version of the future");
	r = good();
	r.flags = EXT4_RELINK_FLAGS + 1;
	refused(EINVAL, r, "an unknown flag");
	r.flags = EXT4_RELINK_QUERY | EXT4_RELINK_SYNC;
	refused(EINVAL, r, "a query with another flag");
	r = good();
	r.reserved[1] = 1;
	refused(EINVAL, r, "a reserved field");
	r = good();
	r.flags = EXT4_RELINK_KEEP_SIZE;
	refused(EINVAL, r, "KEEP_SIZE with a size");
	check(ioctl(target.fd, EXT4_IOC_RELINK, (void *)8) == -1 && errno == EFAULT, "a bad pointer");
}

static void bad_range(void)
{
	struct ext4_relink r;

	two_files();
	r = good();
	r.donor_offset = 1;
	refused(EINVAL, r, "a donor offset within a block");
	r = good();
	r.target_offset += 512;
	r.new_size += 512;
	refused(EINVAL, r, "a target offset within a block");
	r = good();
	r.length = 0;
	refused(EINVAL, r, "nothing");
	r = relink_args(&donor, 0, 0, B + 1);
	refused(EINVAL, r, "an odd length within the target");
	r = relink_args(&donor, 0, 0, 3 * B + 5);
	refused(EINVAL, r, "an odd length that ends short of the target's end");
	r = good();
	r.length -= 1;
	refused(EINVAL, r, "an odd length that ends short of the new size");
	r = relink_args(&donor, 4 * B, 8 * B, 4 * B + 1);
	refused(EINVAL, r, "a range that reaches behind the donor's end");
	r = relink_args(&donor, 8 * B, 8 * B, B);
	refused(EINVAL, r, "a range behind the donor's end");
	r = good();
	r.new_size = 12 * B - 1;
	refused(EINVAL, r, "a new size within the range");
	r = good();
	r.flags = EXT4_RELINK_KEEP_SIZE;
	r.new_size = 0;
	refused(EINVAL, r, "KEEP_SIZE behind the target's end");
	r = good();
	r.donor_offset = (uint64_t)INT64_MAX / B * B;
	refused(EINVAL, r, "a donor offset near the largest number");
	r = good();
	r.length = UINT64_MAX - 1;
	refused(EFBIG, r, "a length near the largest number");
	r = good();
	r.target_offset = (uint64_t)INT64_MAX / B * B;
	refused(EFBIG, r, "a target offset near the largest number");
	r = good();
	r.new_size = (uint64_t)1 << 60;
	refused(EFBIG, r, "a size beyond what the file system can");
	r = good();
	r.donor_fd = target.fd;
	refused(EINVAL, r, "a file as its own donor");
}

static void bad_descriptors(void)
{
	struct ext4_relink r;
	int fds[2], fd;

	two_files();
	r = good();
	r.donor_fd = -1;
	refused(EBADF, r, "no donor");
	r.donor_fd = 1000;
	refused(EBADF, r, "a donor that is not open");
	r.donor_fd = open("donor", O_RDONLY);
	refused(EBADF, r, "a donor for reading only");
	r.donor_fd = open("donor", O_WRONLY);
	refused(EBADF, r, "a donor for writing only");
	r.donor_fd = open("donor", O_PATH);
	refused(EBADF, r, "a donor opened as a path");
	fd = open("target", O_RDONLY);
	r = good();
	check(relink_call(fd, &r) == EBADF, "a target for reading only");
	fd = open("target", O_RDWR | O_APPEND);
	check(relink_call(fd, &r) == EBADF, "a target for appending only");
	fd = open(".", O_RDONLY);
	check(relink_call(fd, &r) == EBADF, "a directory as target");
	check(pipe(fds) == 0, "pipe");
	r.donor_fd = fds[0];
	refused(EBADF, r, "a pipe as donor");
	r.donor_fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	if (r.donor_fd < 0)
		r.donor_fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	check(r.donor_fd >= 0, "no file on another file system");
	refused(EXDEV, r, "a donor of another file system");
	r.donor_fd = open("/dev/null", O_RDWR);
	refused(EXDEV, r, "a device as donor");
}

static void size_limit(void)
{
	struct rlimit limit = {.rlim_cur = 10 * B, .rlim_max = RLIM_INFINITY};

	two_files();
	signal(SIGXFSZ, SIG_IGN);
	check(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
	refused(EFBIG, good(), "a size beyond the process's limit");
}

/* Sets an inode flag (chattr) for the time of one refused call. */
static void refused_with_flag(struct file *f, int flag, int expected, const char *what)
{
	int before, with;

	check(ioctl(f->fd, FS_IOC_GETFLAGS, &before) == 0, "reading flags");
	with = before | flag;
	check(ioctl(f->fd, FS_IOC_SETFLAGS, &with) == 0, "%s: setting the flag", what);
	refused(expected, good(), what);
	check(ioctl(f->fd, FS_IOC_SETFLAGS, &before) == 0, "%s: clearing the flag", what);
}

static void immutable_and_append_only(void)
{
	if (geteuid())
		skip("needs root");
	two_files();
	refused_with_flag(&target, FS_IMMUTABLE_FL, EPERM, "an immutable target");
	refused_with_flag(&donor, FS_IMMUTABLE_FL, EPERM, "an immutable donor");
	refused_with_flag(&target, FS_APPEND_FL, EPERM, "an append-only target");
	refused_with_flag(&donor, FS_APPEND_FL, EPERM, "an append-only donor");
}

/* Whether ours is a mount with delayed allocation: the last line of its directory in the mount table says otherwise. */
static bool delayed_allocation(void)
{
	FILE *mounts = fopen("/proc/self/mounts", "r");
	char line[1024], dir[512];
	bool delayed = true;

	check(mounts, "no mount table");
	while (fgets(line, sizeof(line), mounts))
		if (sscanf(line, "%*s %511s", dir) == 1 && !strcmp(dir, env.dir))
			delayed = !strstr(line, "nodelalloc");
	fclose(mounts);
	return delayed;
}

static void journalled_data(void)
{
	int flags;

	two_files();
	check(ioctl(target.fd, FS_IOC_GETFLAGS, &flags) == 0, "reading flags");
	flags |= FS_JOURNAL_DATA_FL;
	if (ioctl(target.fd, FS_IOC_SETFLAGS, &flags))
		skip("no data journalling here: %s", strerror(errno));
	if (delayed_allocation())
		skip("with delayed allocation the flag has no effect");
	refused(EOPNOTSUPP, good(), "a target with journalled data");
}

static void block_mapped(void)
{
	int flags;

	two_files();
	file_free(&target);
	target = file_new("target", 16 * B);
	check(ioctl(target.fd, FS_IOC_GETFLAGS, &flags) == 0, "reading flags");
	flags &= ~FS_EXTENT_FL;
	if (ioctl(target.fd, FS_IOC_SETFLAGS, &flags))
		skip("no block-mapped files here: %s", strerror(errno));
	refused(EOPNOTSUPP, good(), "a block-mapped target");
}

static void swap_file(void)
{
	struct file swap;
	char header[4096] = {0};

	if (geteuid())
		skip("needs root");
	two_files();
	swap = file_new("swap", MIB);
	file_write(&swap, 0, MIB, 3);
	memcpy(header + 1024, &(uint32_t[]){1, MIB / 4096 - 1}, 8);
	memcpy(header + 4086, "SWAPSPACE2", 10);
	check(pwrite(swap.fd, header, sizeof(header), 0) == sizeof(header), "writing a swap header");
	memcpy(swap.bytes, header, sizeof(header));
	fsync(swap.fd);
	if (swapon("swap", 0))
		skip("no swapping to a file here: %s", strerror(errno));
	target.fd = swap.fd;
	target.bytes = swap.bytes;
	target.size = target.room = MIB;
	refused(ETXTBSY, relink_args(&donor, 0, 4 * B, 4 * B), "a swap file as target");
	check(swapoff("swap") == 0, "swapoff");
}

static void inline_data(void)
{
	struct file tiny;
	struct ext4_relink r;
	int flags;

	two_files();
	tiny = file_new("tiny", 8 * B);
	file_write(&tiny, 0, 10, 3);
	fsync(tiny.fd);
	check(ioctl(tiny.fd, FS_IOC_GETFLAGS, &flags) == 0, "reading flags");
	if (!(flags & FS_INLINE_DATA_FL))
		skip("no inline data here");
	r = good();
	check(relink_call(tiny.fd, &r) == EOPNOTSUPP, "a target with inline data");
	file_verify(&tiny, "inline data");
	file_verify(&donor, "inline data");
	r = relink_args(&tiny, 0, 8 * B, 10);
	refused(EOPNOTSUPP, r, "a donor with inline data");
	/* An empty file is no such file yet. */
	file_free(&tiny);
	tiny = file_new("tiny", 16 * B);
	r = good();
	check(relink_checked(&tiny, &donor, &r) == 0, "an empty file where there is inline data");
	file_write(&tiny, 0, 10, 4);
	file_verify(&tiny, "written afterwards");
}

static void verity(void)
{
	struct fsverity_enable_arg arg = {.version = 1, .hash_algorithm = FS_VERITY_HASH_ALG_SHA256, .block_size = 4096};
	struct ext4_relink r;
	int fd, old;

	two_files();
	/* Verity wants no writers, and relink wants one: so none can be had. */
	close(target.fd);
	fd = open("target", O_RDONLY);
	if (ioctl(fd, FS_IOC_ENABLE_VERITY, &arg))
		skip("no verity here: %s", strerror(errno));
	r = good();
	check(relink_call(fd, &r) == EBADF, "a verity file as target");
	old = donor.fd;
	donor.fd = fd;
	r = good();
	donor.fd = old;
	target = file_new("other", 16 * B);
	refused(EBADF, r, "a verity file as donor");
	check(open("target", O_RDWR) == -1 && errno == EPERM, "a verity file can be written to");
}

static void encrypted(void)
{
	struct {
		struct fscrypt_add_key_arg arg;
		uint8_t key[64];
	} add = {.arg = {.key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER, .raw_size = 64}};
	struct fscrypt_policy_v2 policy = {.version = 2,
					   .contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
					   .filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
					   .flags = FSCRYPT_POLICY_FLAGS_PAD_32};
	struct ext4_relink r;
	struct file secret;
	int dir;

	two_files();
	memset(add.key, 7, sizeof(add.key));
	rmdir("vault");
	check(mkdir("vault", 0700) == 0, "mkdir");
	dir = open("vault", O_RDONLY);
	if (ioctl(dir, FS_IOC_ADD_ENCRYPTION_KEY, &add))
		skip("no encryption here: %s", strerror(errno));
	memcpy(policy.master_key_identifier, add.arg.key_spec.u.identifier, sizeof(policy.master_key_identifier));
	if (ioctl(dir, FS_IOC_SET_ENCRYPTION_POLICY, &policy))
		skip("no encryption here: %s", strerror(errno));
	secret = file_new("vault/secret", 16 * B);
	file_write(&secret, 0, 8 * B, 3);
	r = relink_args(&donor, 0, 8 * B, 4 * B);
	check(relink_call(secret.fd, &r) == EOPNOTSUPP, "an encrypted target");
	file_verify(&secret, "an encrypted target");
	r = relink_args(&secret, 0, 8 * B, 4 * B);
	refused(EOPNOTSUPP, r, "an encrypted donor");
}

/* One of the files DAX, the other not (needs dax=inode). */
static void mixed_dax(void)
{
	struct fsxattr attributes;

	two_files();
	check(mkdir("mixed", 0700) == 0 || errno == EEXIST, "mkdir");
	if (ioctl(open("mixed", O_RDONLY), FS_IOC_FSGETXATTR, &attributes))
		skip("no file attributes here");
	attributes.fsx_xflags ^= FS_XFLAG_DAX;
	if (ioctl(open("mixed", O_RDONLY), FS_IOC_FSSETXATTR, &attributes))
		skip("DAX cannot be chosen by file here");
	file_free(&target);
	target = file_new("mixed/target", 16 * B);
	{
		struct statx a, b;

		check(statx(target.fd, "", AT_EMPTY_PATH, 0, &a) == 0 && statx(donor.fd, "", AT_EMPTY_PATH, 0, &b) == 0,
		      "statx");
		if ((a.stx_attributes ^ b.stx_attributes) & 0x200000)
			refused(EINVAL, good(), "one file DAX, the other not");
		else
			skip("DAX cannot be chosen by file here");
	}
}

const struct test_case refusal_cases[] = {
	{"bad_structure", bad_structure},
	{"bad_range", bad_range},
	{"bad_descriptors", bad_descriptors},
	{"size_limit", size_limit},
	{"immutable_and_append_only", immutable_and_append_only},
	{"journalled_data", journalled_data},
	{"block_mapped", block_mapped},
	{"swap_file", swap_file},
	{"inline_data", inline_data},
	{"verity", verity},
	{"encrypted", encrypted},
	{"mixed_dax", mixed_dax},
	{0},
};
