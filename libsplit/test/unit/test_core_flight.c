/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread is held up in the middle of its copy, by a page of its buffer that may not be read yet: reads and writes elsewhere in the file
 * go on; what follows it in order waits, and leaves no record before its own; what overlaps waits too. So it is also where that thread had the
 * file's lock for itself.
 */
#include "harness.h"
#include "io/staged.h"
#include "unit/core_agent.h"
#include "unit/core_log.h"

#include <signal.h>
#include <sys/mman.h>

enum { KEPT = 256 << 10, LONG = 64 << 10 };

static struct core_agent a = {.slots = 64 + 1000, .chunk_bytes = 4 << 20, .chunks_left = 16};
static bool strict;
static char path[400];
static int fd;
static uint8_t *slow; /* LONG bytes, the second half of which is to be waited for */
static bool stuck, go;
static uint8_t content[KEPT + 8 * LONG], seen[KEPT + 8 * LONG];
static size_t size;

static void wait_for(const bool *flag)
{
	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		usleep(200);
}

static void fault(int sig, siginfo_t *si, void *context)
{
	(void)sig, (void)context;
	if ((uint8_t *)si->si_addr < slow || (uint8_t *)si->si_addr >= slow + LONG)
		_exit(99);
	__atomic_store_n(&stuck, true, __ATOMIC_RELEASE);
	wait_for(&go);
	mprotect(slow + LONG / 2, LONG / 2, PROT_READ | PROT_WRITE);
}

/* A write by a thread of its own. */
struct call {
	pthread_t thread;
	const uint8_t *from;
	uint8_t *to; /* a read, then */
	size_t n;
	off_t off; /* negative: at the end, through a descriptor of its own */
	int fd;
	bool own; /* the lock is the thread's own when it begins */
	bool done;
};

static struct sfs_inode *inode(void)
{
	struct sfs_inode *in;
	struct stat st;

	CHECK(stat(path, &st) == 0 && (in = sfs_inode_ref(st.st_dev, st.st_ino)));
	return in;
}

static void make_own(void)
{
	struct sfs_inode *in = inode();

	for (int i = 0; i < 1000000 && __atomic_load_n(&in->lock.bias.owner, __ATOMIC_RELAXED) != sfs_self(); i++)
		CHECK_EQ(sfs_write(fd, content, 100, 0), 100);
	CHECK(__atomic_load_n(&in->lock.bias.owner, __ATOMIC_RELAXED) == sfs_self());
	sfs_inode_put(in);
}

static void *call_main(void *arg)
{
	struct call *c = arg;

	if (c->own)
		make_own();
	c->fd = c->off < 0 ? sfs_openat(AT_FDCWD, path, O_RDWR | O_APPEND, 0) : fd;
	CHECK(c->fd >= 0);
	CHECK_EQ(c->to ? sfs_read(c->fd, c->to, c->n, c->off) : sfs_write(c->fd, c->from, c->n, c->off), c->n);
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void start(struct call *c)
{
	c->done = false;
	CHECK_EQ(pthread_create(&c->thread, NULL, call_main, c), 0);
}

static void finish(struct call *c)
{
	CHECK_EQ(pthread_join(c->thread, NULL), 0);
}

/* It waits: as far as a while can show it. */
static void check_waits(const struct call *c)
{
	usleep(30000);
	CHECK(!__atomic_load_n(&c->done, __ATOMIC_ACQUIRE));
}

/* The slow one begins, and is held up. */
static void hold(struct call *c)
{
	stuck = go = false;
	CHECK_EQ(mprotect(slow + LONG / 2, LONG / 2, PROT_NONE), 0);
	start(c);
	wait_for(&stuck);
}

static void release(struct call *c)
{
	__atomic_store_n(&go, true, __ATOMIC_RELEASE);
	finish(c);
}

static void nothing(void *ctx, const struct sfs_record *r, const uint8_t *data)
{
	(void)ctx, (void)r, (void)data;
}

static const uint8_t *staged(uint32_t file)
{
	static uint8_t *maps[64];
	char name[500];
	int chunk;

	CHECK(file < 64);
	if (!maps[file]) {
		snprintf(name, sizeof(name), "%s/chunk-%u", a.agents, file);
		chunk = open(name, O_RDONLY);
		CHECK(chunk >= 0);
		maps[file] = mmap(NULL, a.chunk_bytes, PROT_READ, MAP_SHARED, chunk, 0);
		CHECK(maps[file] != MAP_FAILED);
		close(chunk);
	}
	return maps[file];
}

static unsigned records(void)
{
	struct stat st;

	CHECK_EQ(stat(path, &st), 0);
	return core_log_each((const struct sfs_log_header *)a.log, st.st_ino, staged, nothing, NULL);
}

static void check_all(void)
{
	CHECK_EQ(sfs_read(fd, seen, sizeof(seen), 0), size);
	CHECK_MEM(seen, content, size);
}

/* KEPT bytes that are in the file, and a few that are staged behind them. */
static void begin(void)
{
	uint64_t state = 4711;
	struct sfs_inode *in;

	fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	test_fill(&state, content, sizeof(content));
	CHECK_EQ(sfs_write(fd, content, KEPT, 0), KEPT);
	CHECK_EQ(sfs_fsync(fd, false), 0);
	size = KEPT;
	in = inode();
	/* The service thread may be waking up to relink what there is: again, then. */
	do {
		CHECK_EQ(sfs_write(fd, content + size, 1000, (off_t)size), 1000);
		size += 1000;
		usleep(20000);
	} while (__atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) == 0);
	sfs_inode_put(in);
	CHECK_EQ(sfs_read(fd, seen, size, 0), size); /* by the kernel: a file is looked at first */
	check_all();
}

static void overwrite(off_t off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		content[off + (off_t)i] ^= 0x5a;
	CHECK_EQ(sfs_write(fd, content + off, n, off), n);
}

static void append_held_up(void)
{
	struct call first = {.from = slow, .n = LONG, .off = -1}, next = {.n = 3000, .off = -1};
	unsigned before;

	begin();
	memcpy(slow, content + size, LONG);
	next.from = content + size + LONG;
	before = records();
	hold(&first);
	check_all();
	if (!strict) {
		overwrite(4096, 8192);
		overwrite(100, 50);
		check_all();
	}
	start(&next);
	check_waits(&next);
	CHECK_EQ(records(), before);
	check_all();
	release(&first);
	finish(&next);
	size += LONG + 3000;
	check_all();
	CHECK_EQ(sfs_close(first.fd) + sfs_close(next.fd) + sfs_close(fd), 0);
}

static void overwrite_held_up(void)
{
	struct call first = {.from = slow, .n = LONG, .off = 20000}, end = {.n = 5000, .off = -1};
	struct call same = {.from = content + 21000, .n = 9000, .off = 21000}, read = {.to = seen, .n = 9000, .off = 19000};
	uint8_t *old = malloc(sizeof(content));
	unsigned before;

	begin();
	CHECK(old);
	memcpy(old, content, sizeof(content));
	for (int i = 0; i < LONG; i++)
		slow[i] = content[20000 + i] ^= 0xff;
	end.from = content + size;
	before = records();
	hold(&first);
	CHECK_EQ(sfs_read(fd, seen, 10000, 10000), 10000);
	CHECK_MEM(seen, content + 10000, 10000);
	if (strict) {
		/* Its blocks are its own: everybody sees what was there. In its place in the order, others wait. */
		CHECK_EQ(sfs_read(fd, seen, LONG, 20000), LONG);
		CHECK_MEM(seen, old + 20000, LONG);
		start(&end);
		check_waits(&end);
		CHECK_EQ(records(), before);
	} else {
		overwrite(0, 4096);
		overwrite(20000 + LONG, 4096);
		start(&end);
		finish(&end);
		start(&read);
		check_waits(&read);
	}
	start(&same);
	check_waits(&same);
	release(&first);
	if (strict)
		finish(&end);
	else
		finish(&read);
	finish(&same);
	size += 5000;
	check_all();
	free(old);
	CHECK_EQ(sfs_close(end.fd) + sfs_close(fd), 0);
}

/* Reads and, where there is no order to keep, short writes of others beside a call whose thread had the file's lock for itself. */
static void check_beside(struct call *slow_one)
{
	struct call read = {.to = seen, .n = 5000, .off = 3000}, overwrite = {.from = content + 100, .n = 200, .off = 100};

	hold(slow_one);
	start(&read);
	finish(&read);
	CHECK_MEM(seen, content + 3000, 5000);
	if (!strict || slow_one->to) {
		start(&overwrite);
		finish(&overwrite);
	}
	release(slow_one);
}

/* With a file of its own, as a lock becomes one thread's in its life. */
static void own_lock_lent(bool reads)
{
	struct call call = {.from = slow, .to = reads ? slow : NULL, .n = LONG, .off = 20000, .own = true};

	snprintf(path, sizeof(path), "%s/own-%d", a.root, reads);
	begin();
	for (int i = 0; i < LONG; i++)
		slow[i] = reads ? 0 : (content[20000 + i] ^= 0xff);
	check_beside(&call);
	CHECK_MEM(slow, content + 20000, LONG);
	check_all();
	CHECK_EQ(sfs_close(fd), 0);
}

/* One that needs more extents than an operation may have, though nobody is in its way. */
static void in_pieces(void)
{
	const size_t n = (SFS_EXTENTS_MAX + 16) * a.chunk_bytes;
	struct call c = {.n = n, .off = -1};
	uint8_t *big = malloc(n), *found = malloc(n);
	uint64_t state = 11;
	char other[420];
	int first;

	CHECK(big && found);
	test_fill(&state, big, n);
	/* Another file leases as many staging files, one after the other. */
	snprintf(other, sizeof(other), "%s/other", a.root);
	first = sfs_openat(AT_FDCWD, other, O_RDWR | O_CREAT, 0644);
	CHECK(first >= 0);
	for (size_t at = 0; at < n + KEPT; at += a.chunk_bytes)
		CHECK_EQ(sfs_write(first, big, a.chunk_bytes, (off_t)at), a.chunk_bytes);
	CHECK_EQ(sfs_close(first), 0);
	begin();
	c.from = big;
	start(&c);
	finish(&c);
	CHECK_EQ(sfs_read(fd, found, n, (off_t)size), n);
	CHECK_MEM(found, big, n);
	CHECK_EQ(sfs_close(c.fd) + sfs_close(fd), 0);
	free(big);
	free(found);
}

int main(int argc, char **argv)
{
	static const char *const modes[] = {"posix", "sync", "strict"};
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};

	if (argc < 2) {
		for (int m = 0; m < 3; m++) {
			char cmd[600];

			snprintf(cmd, sizeof(cmd), "'%s' %s && '%s' %s pieces", argv[0], modes[m], argv[0], modes[m]);
			CHECK_EQ(system(cmd), 0);
		}
		return 0;
	}
	strict = strcmp(argv[1], "strict") == 0;
	if (argc > 2) {
		a.chunk_bytes = 16 << 10;
		a.chunks_left = 250;
	}
	core_agent_start(&a, argv[1]);
	snprintf(path, sizeof(path), "%s/file", a.root);
	slow = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(slow != MAP_FAILED);
	CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
	if (argc > 2) {
		in_pieces();
	} else {
		append_held_up();
		overwrite_held_up();
		own_lock_lent(false);
		own_lock_lent(true);
	}
	core_agent_remove(&a);
	return 0;
}
