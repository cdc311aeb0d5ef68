/* SPDX-License-Identifier: Apache-2.0 */
/* The generation: stable over rename and reopening, different for a file that took over an inode number. */
#include "format/identity.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "harness.h"

static uint32_t generation(int fd)
{
	uint32_t gen;

	CHECK_EQ(sfs_generation(fd, &gen), 0);
	return gen;
}

/* Create and remove files until an inode number comes back; says whether it did. */
static int reuse(const char *dir, int *differs)
{
	char path[128];
	struct stat first, st;
	uint32_t gen, again;
	int fd;

	snprintf(path, sizeof(path), "%s/splitfs-identity-%d", dir, (int)getpid());
	fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(fstat(fd, &first), 0);
	gen = generation(fd);
	CHECK_EQ(generation(fd), gen);
	close(fd);
	CHECK_EQ(unlink(path), 0);
	for (int i = 0; i < 100; i++) {
		fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
		CHECK(fd >= 0);
		CHECK_EQ(fstat(fd, &st), 0);
		again = generation(fd);
		close(fd);
		CHECK_EQ(unlink(path), 0);
		if (st.st_ino == first.st_ino) {
			*differs = again != gen;
			return 1;
		}
	}
	return 0;
}

int main(void)
{
	char path[64] = "/tmp/splitfs-identity-XXXXXX", other[80];
	int fd = mkstemp(path), fd2, differs;
	uint32_t gen;

	CHECK(fd >= 0);
	gen = generation(fd);
	snprintf(other, sizeof(other), "%s.renamed", path);
	CHECK_EQ(rename(path, other), 0);
	fd2 = open(other, O_RDONLY);
	CHECK(fd2 >= 0);
	CHECK_EQ(generation(fd2), gen);
	CHECK_EQ(unlink(other), 0);
	close(fd2);
	close(fd);
	CHECK_EQ(sfs_generation(fd, &gen), -EBADF);

	if (reuse("/tmp", &differs))
		CHECK(differs);
	if (access("/dev/shm", W_OK) == 0 && reuse("/dev/shm", &differs))
		CHECK(differs);
	return 0;
}
