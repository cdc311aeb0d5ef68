/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read by the kernel, which a file that others have open too is read by, is held up in the middle: until it has ended the process
 * keeps its delegation, so that nobody stages bytes meanwhile that the read would miss, or see a part of. Readers without a pause, one
 * beginning before the other has ended, keep it no longer than that.
 */
#include "harness.h"
#include "io/io.h"
#include "unit/core_agent.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { N = 64 << 10, READERS = 8, TIMES = 20 };

static struct core_agent a;
static uint8_t content[N];
static int fd;
static bool enough;

static void *read_main(void *buf)
{
	CHECK_EQ(sfs_read(fd, buf, N, 0), N);
	return NULL;
}

/* Asks for the file. */
static void ask(const struct stat *st, unsigned to)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_REVOKE, .a = st->st_ino, .c = to, .d = to + 100};

	core_agent_send(a.events, &m, NULL, 0);
}

static bool answered(unsigned to, int ms)
{
	struct pollfd p = {a.events, POLLIN, 0};
	struct sfs_msg m;

	if (poll(&p, 1, ms) == 0)
		return false;
	CHECK_EQ(recv(a.events, &m, sizeof(m), 0), sizeof(m));
	CHECK(m.type == SFS_MSG_REVOKED && m.c == to && m.d == to + 100);
	return true;
}

static void *reads_main(void *arg)
{
	static uint8_t buf[READERS][N];
	uint8_t *mine = buf[(long)arg];

	do /* once at least: it may begin when the others have ended */
		CHECK_EQ(sfs_read(fd, mine, N, 0), N);
	while (!__atomic_load_n(&enough, __ATOMIC_RELAXED));
	CHECK_MEM(mine, content, N);
	return NULL;
}

static void readers(const struct stat *st)
{
	pthread_t thread[READERS];

	for (long i = 0; i < READERS; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, reads_main, (void *)i), 0);
	for (int i = 0; i < TIMES; i++) {
		ask(st, SFS_DELEG_SHARED);
		CHECK(answered(SFS_DELEG_SHARED, 5000));
		ask(st, SFS_DELEG_NONE);
		CHECK(answered(SFS_DELEG_NONE, 5000));
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
	for (int i = 0; i < READERS; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
}

int main(void)
{
	const int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_zeropage fill = {.range = {.len = N}};
	struct uffd_msg event;
	struct sfs_inode *in;
	pthread_t reader;
	uint64_t state = 5;
	uint8_t *slow;
	char path[400];
	struct stat st;

	if (uffd < 0)
		SKIP("userfaultfd: %s", strerror(errno));
	core_agent_start(&a, "strict");
	snprintf(path, sizeof(path), "%s/file", a.root);
	fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0644);
	test_fill(&state, content, N);
	CHECK(fd >= 0 && stat(path, &st) == 0 && (in = sfs_inode_ref(st.st_dev, st.st_ino)));
	CHECK_EQ(sfs_write(fd, content, N, 0), N);
	ask(&st, SFS_DELEG_SHARED);
	CHECK(answered(SFS_DELEG_SHARED, 10000));

	slow = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = fill.range.start = (uintptr_t)slow;
	reg.range.len = N;
	CHECK(slow != MAP_FAILED && ioctl(uffd, UFFDIO_API, &api) == 0 && ioctl(uffd, UFFDIO_REGISTER, &reg) == 0);
	CHECK_EQ(pthread_create(&reader, NULL, read_main, slow), 0);
	CHECK_EQ(read(uffd, &event, sizeof(event)), sizeof(event));
	CHECK_EQ(event.event, UFFD_EVENT_PAGEFAULT);
	ask(&st, SFS_DELEG_NONE);
	CHECK(!answered(SFS_DELEG_NONE, 100));
	CHECK_EQ(sfs_grant_deleg(&in->grant), SFS_DELEG_SHARED);

	CHECK_EQ(ioctl(uffd, UFFDIO_ZEROPAGE, &fill), 0);
	CHECK_EQ(pthread_join(reader, NULL), 0);
	CHECK_MEM(slow, content, N);
	CHECK(answered(SFS_DELEG_NONE, 10000));
	CHECK_EQ(sfs_grant_deleg(&in->grant), SFS_DELEG_NONE);
	readers(&st);
	sfs_inode_put(in);
	CHECK_EQ(sfs_close(fd), 0);
	core_agent_remove(&a);
	return 0;
}
