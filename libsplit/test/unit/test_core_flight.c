/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread is held up in the middle of its copy, by a page of its buffer that does not come. Nothing is held meanwhile: reads, writes, also
 * of the same bytes, fsync, truncation and the service thread's turns go on, and are right. When the page comes that thread's write is made
 * whole. So it is for every kind of read and write, in posix and strict.
 */
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "harness.h"
#include "io/io.h"
#include "unit/core_agent.h"

enum { PAGE = 4096, N = 64 << 10, FILE_BYTES = 4 * N, OTHERS_MS = 3000 };

static struct core_agent a = {.slots = 64 + 1000, .chunk_bytes = 4 << 20, .chunks_left = 16};
static int uffd, fd;
static bool strict;
static uint8_t *slow; /* N bytes, all but the first page to be waited for */
static uint8_t content[8 * N], seen[8 * N], bytes[N];
static size_t size;

/* A page that is waited for: somebody is in the middle of its copy. */
static void await_fault(void)
{
	struct uffd_msg event;

	CHECK_EQ(read(uffd, &event, sizeof(event)), (ssize_t)sizeof(event));
	CHECK_EQ(event.event, UFFD_EVENT_PAGEFAULT);
}

static void let_go(void)
{
	struct uffdio_copy c = {.dst = (uintptr_t)slow + PAGE, .src = (uintptr_t)bytes + PAGE, .len = N - PAGE};

	CHECK_EQ(ioctl(uffd, UFFDIO_COPY, &c), 0);
}

static void make_slow(void)
{
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	slow = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(slow != MAP_FAILED);
	memcpy(slow, bytes, PAGE);
	reg.range.start = (uintptr_t)slow + PAGE;
	reg.range.len = N - PAGE;
	CHECK_EQ(ioctl(uffd, UFFDIO_REGISTER, &reg), 0);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

struct call {
	pthread_t thread;
	bool read;
	off_t off; /* negative: at the end, through a descriptor of its own */
	ssize_t r;
	bool done;
};

static void *call_main(void *arg)
{
	struct call *c = arg;
	char path[400];
	int own = fd;

	snprintf(path, sizeof(path), "%s/file", a.root);
	if (c->off < 0)
		CHECK((own = sfs_openat(AT_FDCWD, path, O_RDWR | O_APPEND, 0)) >= 0);
	c->r = c->read ? sfs_read(own, slow, N, c->off) : sfs_write(own, slow, N, c->off);
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	if (c->off < 0)
		CHECK_EQ(sfs_close(own), 0);
	return NULL;
}

static void put(size_t n, off_t off, int seed)
{
	uint64_t state = (uint64_t)seed;

	test_fill(&state, content + off, n);
	CHECK_EQ(sfs_write(fd, content + off, n, off), (ssize_t)n);
	if ((size_t)off + n > size)
		size = (size_t)off + n;
}

/* What of the file does not belong to the one that is held up. */
static void same_but(off_t from, off_t to)
{
	CHECK_EQ(sfs_read(fd, seen, sizeof(seen), 0), (ssize_t)size);
	for (size_t i = 0; i < size; i++)
		CHECK(((off_t)i >= from && (off_t)i < to) || seen[i] == content[i]);
}

/* Everything that others do meanwhile. [from, to): what the held up one is about. */
static void others(off_t from, off_t to)
{
	struct stat st;

	put(100, FILE_BYTES - 200, 1);
	put(3 * PAGE, FILE_BYTES - 5 * PAGE + 7, 2);
	same_but(from, to);
	put(10000, (off_t)size, 3);
	put(200, (off_t)size, 4);
	CHECK_EQ(sfs_fsync(fd, false), 0);
	same_but(from, to);
	put(50, (off_t)size, 5);
	sfs_all_true();
	CHECK_EQ(sfs_ftruncate(fd, (off_t)size - 40), 0);
	size -= 40;
	CHECK_EQ(sfs_lseek(fd, 0, SEEK_END), (off_t)size);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)size);
	same_but(from, to);
}

static void begin(bool mostly_staged)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/file", a.root);
	CHECK((fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	size = 0;
	put(FILE_BYTES, 0, 9);
	if (!mostly_staged)
		CHECK_EQ(sfs_fsync(fd, false), 0);
	make_slow();
}

static void finish(struct call *c, off_t from)
{
	let_go();
	CHECK_EQ(pthread_join(c->thread, NULL), 0);
	CHECK_EQ(c->r, (ssize_t)N);
	if (!c->read) {
		if (from < 0)
			from = (off_t)size;
		memcpy(content + from, bytes, N);
		if ((size_t)from + N > size)
			size = (size_t)from + N;
	}
	same_but(0, 0);
	CHECK_EQ(munmap(slow, N), 0);
	CHECK_EQ(sfs_close(fd), 0);
}

/* A write at off (negative: an append) is held up. */
static void held_write(off_t off, bool staged)
{
	struct call c = {.off = off};
	double began;

	begin(staged);
	CHECK_EQ(pthread_create(&c.thread, NULL, call_main, &c), 0);
	await_fault();
	began = now_ms();
	others(off < 0 ? 0 : off, off < 0 ? 0 : off + N);
	CHECK(now_ms() - began < OTHERS_MS);
	CHECK(!__atomic_load_n(&c.done, __ATOMIC_ACQUIRE));
	finish(&c, off);
}

/* The same, and others write over the same bytes: they come before it, since its call has not returned. */
static void overtaken(off_t off)
{
	struct call c = {.off = off};

	begin(false);
	CHECK_EQ(pthread_create(&c.thread, NULL, call_main, &c), 0);
	await_fault();
	put(1000, off + 5000, 21);
	put(2 * PAGE, off + 2 * PAGE, 22);
	CHECK(!__atomic_load_n(&c.done, __ATOMIC_ACQUIRE));
	finish(&c, off);
}

static void held_read(bool staged)
{
	struct call c = {.read = true};
	double began;

	begin(staged);
	CHECK_EQ(pthread_create(&c.thread, NULL, call_main, &c), 0);
	await_fault();
	began = now_ms();
	put(5000, 3000, 31); /* what it reads */
	others(0, 0);
	CHECK(now_ms() - began < OTHERS_MS);
	let_go();
	CHECK_EQ(pthread_join(c.thread, NULL), 0);
	CHECK_EQ(c.r, (ssize_t)N);
	/* From one moment, and that is after the write, which it has met. */
	CHECK_MEM(slow, content, N);
	CHECK_EQ(munmap(slow, N), 0);
	CHECK_EQ(sfs_close(fd), 0);
}

static void all(void)
{
	uint64_t state = 77;

	test_fill(&state, bytes, N);
	held_write(0, false);
	held_write(PAGE + 11, false);
	held_write(-1, true);
	held_write(-1, false);
	held_write(PAGE + 11, true);
	overtaken(PAGE + 3);
	held_read(false);
	held_read(true);
	core_agent_remove(&a);
}

int main(int argc, char **argv)
{
	struct uffdio_api api = {.api = UFFD_API};
	char cmd[400];

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd < 0)
		SKIP("userfaultfd: %s", strerror(errno));
	CHECK_EQ(ioctl(uffd, UFFDIO_API, &api), 0);
	strict = argc > 1;
	core_agent_start(&a, strict ? "strict" : "posix");
	all();
	if (strict)
		return 0;
	snprintf(cmd, sizeof(cmd), "%s strict", argv[0]);
	CHECK_EQ(system(cmd), 0);
	return 0;
}
