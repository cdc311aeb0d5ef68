/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and what takes a file away from them. A revocation is answered when they are saved, and not before; an
 * agent that does not watch the file means no snapshot without a copy; a closed file stays as long as somebody looks
 * at it, and goes then. A store in place that is held up in its middle is never a part of a snapshot.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "harness.h"
#include "io/io.h"
#include "process/service.h"
#include "unit/core_agent.h"

enum { PAGE = 4096, N = 64 << 10 };

static struct core_agent a = {.chunks_left = 16};
static uint8_t content[N], other[N];
static char path[400];

static struct sfs_inode *inode_of(const struct stat *st)
{
	struct sfs_inode *in = sfs_inode_ref(st->st_dev, st->st_ino);

	if (in)
		sfs_inode_put(in);
	return in;
}

static int make_file(struct stat *st)
{
	const int fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0 && fstat(fd, st) == 0);
	CHECK_EQ(sfs_write(fd, content, N, 0), N);
	return fd;
}

static const uint8_t *peek(int fd, off_t off, size_t n)
{
	const void *p = NULL;
	size_t got = 0;

	CHECK_EQ(sfs_peek(fd, off, n, &p, &got), 0);
	CHECK_EQ(got, n);
	CHECK_MEM(p, content + off, n);
	return p;
}

/* What the file is for everybody else. */
static void change_behind(size_t off, size_t n)
{
	const int fd = open(path, O_WRONLY);

	CHECK(fd >= 0 && pwrite(fd, other, n, (off_t)off) == (ssize_t)n && close(fd) == 0);
}

static void revoke_it(const struct stat *st, unsigned to)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_REVOKE, .a = st->st_ino, .c = to, .d = 7};
	struct pollfd p = {a.events, POLLIN, 0};
	struct sfs_msg answer;

	core_agent_send(a.events, &m, NULL, 0);
	CHECK_EQ(poll(&p, 1, 10000), 1);
	CHECK_EQ(recv(a.events, &answer, sizeof(answer), 0), sizeof(answer));
	CHECK(answer.type == SFS_MSG_REVOKED && answer.c == to && answer.d == 7);
}

/* The service thread may just be looking at it. */
static void goes(const struct stat *st)
{
	for (int i = 0; i < 5000 && inode_of(st); i++)
		usleep(1000);
	CHECK(!inode_of(st));
}

static void revoked(unsigned to, bool closed)
{
	struct stat st;
	const int fd = make_file(&st);
	const uint8_t *p = peek(fd, 5, N - 5), *q = peek(fd, 2 * PAGE, PAGE);
	struct sfs_inode *in = inode_of(&st);

	CHECK(in && in->pins.held == 2);
	if (closed)
		CHECK_EQ(sfs_close(fd), 0);
	CHECK(inode_of(&st) == in && sfs_grant_deleg(&in->grant) == SFS_DELEG_EXCLUSIVE);
	revoke_it(&st, to);
	CHECK_EQ(in->pins.held, 0);
	CHECK_EQ(in->pins.total, 2);
	change_behind(0, N);
	CHECK_MEM(p, content + 5, N - 5);
	CHECK_EQ(sfs_unpeek(p), 0);
	CHECK_MEM(q, content + 2 * PAGE, PAGE);
	if (!closed)
		CHECK_EQ(sfs_close(fd), 0);
	CHECK(inode_of(&st) == in);
	CHECK_EQ(sfs_unpeek(q), 0);
	CHECK_EQ(sfs_unpeek(q), -EINVAL);
	goes(&st);
}

/* The last snapshot of a closed file takes it along. */
static void closed(void)
{
	struct stat st;
	const int fd = make_file(&st);
	const uint8_t *p = peek(fd, 0, N), *q = peek(fd, 0, 100);
	struct sfs_inode *in = inode_of(&st);

	CHECK(p == q);
	CHECK_EQ(sfs_close(fd), 0);
	CHECK_EQ(unlink(path), 0);
	CHECK(inode_of(&st) == in && in->fd >= 0);
	CHECK_MEM(p, content, N);
	CHECK_EQ(sfs_unpeek(p), 0);
	CHECK_MEM(q, content, N);
	CHECK_EQ(sfs_unpeek(q), 0);
	/* It may rest for a moment, as any closed file that is granted. */
	sfs_inodes_unpark();
	goes(&st);
	CHECK(!sfs_pins_any());
}

/* What an agent says that does not watch, and one that has been started anew and can't. */
static void unwatched(void)
{
	struct sfs_volume *vol = &sfs.volumes[0];
	const void *p = NULL;
	struct stat st;
	size_t got;
	const int fd = make_file(&st);
	struct sfs_inode *in = inode_of(&st);
	const uint8_t *q;

	vol->watches = false;
	CHECK_EQ(sfs_peek(fd, 0, 1, &p, &got), -ENOTSUP);
	vol->watches = true;
	q = peek(fd, 0, N);
	sfs_grant_set(&in->grant, GRANT_EXCLUSIVE);
	CHECK_EQ(in->pins.held, 1);
	sfs_service_turn(false);
	CHECK_EQ(in->pins.held, 0);
	change_behind(0, N);
	CHECK_MEM(q, content, N);
	CHECK_EQ(sfs_unpeek(q), 0);
	CHECK_EQ(sfs_close(fd), 0);
}

/* ---- a store in place that does not end */

static int uffd, held_fd;
static uint8_t *slow;

static void *store_main(void *arg)
{
	(void)arg;
	CHECK_EQ(sfs_write(held_fd, slow, N / 2, PAGE), N / 2);
	return NULL;
}

static void held(void)
{
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_copy c = {.src = (uintptr_t)other + PAGE, .len = N / 2 - PAGE};
	struct uffd_msg event;
	const void *p = NULL;
	const uint8_t *before, *beside;
	pthread_t thread;
	struct stat st;
	size_t got;
	int r;

	held_fd = make_file(&st);
	CHECK_EQ(sfs_fsync(held_fd, false), 0);
	/* Not overwritten in place where somebody looks: this one has gone by then. */
	before = peek(held_fd, 0, 1);
	CHECK_EQ(sfs_unpeek(before), 0);
	slow = mmap(NULL, N / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(slow != MAP_FAILED);
	memcpy(slow, other, PAGE);
	reg.range.start = c.dst = (uintptr_t)slow + PAGE;
	reg.range.len = N / 2 - PAGE;
	CHECK_EQ(ioctl(uffd, UFFDIO_REGISTER, &reg), 0);
	CHECK_EQ(pthread_create(&thread, NULL, store_main, NULL), 0);
	CHECK_EQ(read(uffd, &event, sizeof(event)), sizeof(event));
	/*
	 * Beside it there is no reason to wait. In the middle of it a read shows whatever is there, a snapshot waits,
	 * and then is a read.
	 */
	beside = peek(held_fd, N / 2 + PAGE, N / 2 - PAGE);
	r = sfs_peek(held_fd, 0, N, &p, &got);
	CHECK(r == 0 ? a.chunks_left < 16 : r == SFS_PEEK_COPY);
	if (r == 0) {
		CHECK_MEM(p, content, N); /* staged: it is not part of the file yet */
		CHECK_EQ(got, N);
	}
	CHECK_EQ(ioctl(uffd, UFFDIO_COPY, &c), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	if (r == 0) {
		CHECK_MEM(p, content, N);
		CHECK_EQ(sfs_unpeek(p), 0);
	}
	CHECK_MEM(beside, content + N / 2 + PAGE, N / 2 - PAGE);
	CHECK_EQ(sfs_unpeek(beside), 0);
	CHECK_EQ(sfs_peek(held_fd, 0, N, &p, &got), 0);
	CHECK_MEM((const uint8_t *)p + PAGE, other, N / 2);
	/* And the next one goes elsewhere, as long as somebody looks. */
	CHECK_EQ(sfs_write(held_fd, content, N, 0), N);
	CHECK_MEM((const uint8_t *)p + PAGE, other, N / 2);
	CHECK_EQ(sfs_unpeek(p), 0);
	CHECK_EQ(munmap(slow, N / 2), 0);
	CHECK_EQ(sfs_close(held_fd), 0);
}

int main(int argc, char **argv)
{
	struct uffdio_api api = {.api = UFFD_API};
	uint64_t state = 5;

	if (core_agent_modes(argc, argv))
		return 0;
	core_agent_start(&a, argv[1]);
	snprintf(path, sizeof(path), "%s/file", a.root);
	test_fill(&state, content, N);
	test_fill(&state, other, N);
	for (int i = 0; i < 2; i++) {
		revoked(SFS_DELEG_SHARED, i);
		revoked(SFS_DELEG_NONE, i);
	}
	closed();
	unwatched();
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0)
		held();
	core_agent_remove(&a);
	return 0;
}
