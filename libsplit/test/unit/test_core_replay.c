/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a killed process leaves. Random calls on a few files, with a log and staging files so small that checkpoints and an empty
 * pool happen all the time; before every store, flush and fence that the core makes (PM_RECORD), and after every call, a replayer of
 * a few lines reads the log as recovery would and applies it to copies of the files. Each must then be what it was before the
 * call or what it is after it; in strict exactly one of the two, otherwise, while an overwrite is under way, byte by byte either.
 * Files that the call is not about must be exactly what they were.
 */
#include "harness.h"
#include "unit/core_agent.h"
#include "unit/core_log.h"

#include "io/io.h"
#include "pm/pm.h"
#include "control/store.h"

#define FILES	   3
#define FILE_MAX   (1 << 16)
#define CALLS	   4000
#define SLOTS	   (64 + 72)
#define CHUNKS_MAX 4096

static struct file {
	char path[400];
	int fd;	 /* through the core */
	int raw; /* what the kernel has */
	ino_t ino;
	uint64_t size, next_size; /* before and after the call */
	uint8_t bytes[FILE_MAX], next[FILE_MAX];
} files[FILES];

static struct core_agent agent = {.slots = SLOTS, .chunk_bytes = 256 << 10, .chunks_left = 3};
static const uint8_t *chunks[CHUNKS_MAX];
static uint64_t state;
static struct file *called; /* the file that a call is changing */
static bool is_strict;
static const char *doing = "";
static uint64_t checks, replayed;
static unsigned refused;
static uint8_t image[FILE_MAX], buf[FILE_MAX];

static const uint8_t *staging(uint32_t id)
{
	CHECK(id > 0 && id < CHUNKS_MAX);
	if (!chunks[id]) {
		char path[400];
		int fd;

		snprintf(path, sizeof(path), "%s/chunk-%u", agent.agents, id);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		chunks[id] = mmap(NULL, agent.chunk_bytes, PROT_READ, MAP_SHARED, fd, 0);
		CHECK(chunks[id] != MAP_FAILED);
		close(fd);
	}
	return chunks[id];
}

static void apply(void *ctx, const struct sfs_record *r, const uint8_t *data)
{
	uint64_t *size = ctx;

	CHECK(r->len > 0 && r->off + r->len <= FILE_MAX && r->size >= r->off + r->len && r->size <= FILE_MAX);
	CHECK(r->stage_off + r->len <= agent.chunk_bytes && r->stage_off % SFS_BLOCK == r->off % SFS_BLOCK);
	memcpy(image + r->off, data, r->len);
	*size = r->size > *size ? r->size : *size;
}

/* The file as recovery would leave it, into image; returns its size. */
static uint64_t recovered(const struct file *f)
{
	struct stat st;
	uint64_t size;

	CHECK(fstat(f->raw, &st) == 0 && st.st_size <= FILE_MAX);
	size = (uint64_t)st.st_size;
	memset(image, 0, sizeof(image));
	CHECK_EQ(pread(f->raw, image, size, 0), size);
	if (agent.log)
		replayed += core_log_each((const struct sfs_log_header *)agent.log, f->ino, staging, apply, &size);
	return size;
}

static bool same(const uint8_t *bytes, uint64_t n, uint64_t size)
{
	return n == size && memcmp(image, bytes, n) == 0;
}

static void check(const struct file *f)
{
	const uint64_t size = recovered(f);
	const uint64_t before = f->size, after = f->next_size;

	checks++;
	if (same(f->bytes, before, size) || (called == f && same(f->next, after, size)))
		return;
	if (size != before && (called != f || size != after))
		FAIL("%s: %s recovered with %llu bytes, it had %llu, is to have %llu%s", doing, f->path,
		     (unsigned long long)size, (unsigned long long)before, (unsigned long long)after,
		     called == f ? "" : " (not being changed)");
	for (uint64_t i = 0; i < size; i++) {
		const bool old = i < before ? image[i] == f->bytes[i] : image[i] == 0;
		const bool new = called == f && (i < after ? image[i] == f->next[i] : image[i] == 0);

		if (!old && !new)
			FAIL("%s: %s recovered with byte %llu of %llu wrong%s", doing, f->path, (unsigned long long)i,
			     (unsigned long long)size, called == f ? "" : " (not being changed)");
	}
	if (is_strict || called != f)
		FAIL("%s: %s recovered in part", doing, f->path);
}

static void check_all(void)
{
	for (int i = 0; i < FILES; i++)
		check(&files[i]);
}

static void event(void *ctx, enum pm_event_kind kind, void *dst, const void *src, size_t n)
{
	(void)ctx;
	(void)kind;
	(void)dst;
	(void)src;
	(void)n;
	check_all();
}

static void begin(struct file *f, const char *what)
{
	doing = what;
	memcpy(f->next, f->bytes, FILE_MAX);
	f->next_size = f->size;
	called = f;
}

/* happened: the call succeeded */
static void end(struct file *f, bool happened)
{
	called = NULL;
	if (happened) {
		memcpy(f->bytes, f->next, FILE_MAX);
		f->size = f->next_size;
	}
	check_all();
}

static uint64_t length(void)
{
	static const uint32_t most[] = {16, 200, 5000, 20000};

	return test_random(&state) % 4 == 0 ? SFS_BLOCK : 1 + test_below(&state, most[test_below(&state, 4)]);
}

static void write_some(struct file *f)
{
	const uint64_t kind = test_below(&state, 8), n = length(), cut = test_below(&state, n + 1);
	uint64_t off = kind < 3	   ? f->size
		       : kind == 3 ? f->size + test_below(&state, 9000)
		       : kind == 4 ? f->size - test_below(&state, f->size < 300 ? f->size + 1 : 300) /* about the end */
				   : test_below(&state, f->size + 1);
	const bool durable = test_below(&state, 16) == 0;
	struct iovec iov[2] = {{buf, cut}, {buf + cut, n - cut}};
	ssize_t r;

	if (test_random(&state) % 3 == 0)
		off &= ~(uint64_t)(SFS_BLOCK - 1);
	if (off + n > FILE_MAX)
		return;
	test_fill(&state, buf, n);
	begin(f, "write");
	memcpy(f->next + off, buf, n);
	f->next_size = off + n > f->size ? off + n : f->size;
	r = sfs_writev(f->fd, iov, 2, (off_t)off, durable ? RWF_DSYNC : 0);
	CHECK(r == (ssize_t)n || r == -ENOSPC);
	refused += r < 0;
	end(f, r > 0);
}

static void resize(struct file *f)
{
	uint64_t size = test_below(&state, f->size + 12000);

	if (size > FILE_MAX || test_below(&state, 3) == 0)
		size = f->size / 2;
	begin(f, "truncate");
	f->next_size = size;
	if (size < f->size)
		memset(f->next + size, 0, FILE_MAX - size);
	CHECK_EQ(sfs_ftruncate(f->fd, (off_t)size), 0);
	end(f, true);
}

static void reopen(struct file *f, int flags)
{
	if (f->fd >= 0) {
		begin(f, "close");
		CHECK_EQ(sfs_close(f->fd), 0);
		end(f, true);
	}
	begin(f, "open");
	if (flags & O_TRUNC) {
		f->next_size = 0;
		memset(f->next, 0, FILE_MAX);
	}
	f->fd = sfs_openat(AT_FDCWD, f->path, O_RDWR | O_CREAT | flags, 0644);
	CHECK(f->fd >= 0);
	CHECK(sfs_ours(f->fd));
	end(f, true);
}

static void call(struct file *f)
{
	const uint64_t off = test_below(&state, f->size + 100), n = length();
	const uint64_t have = off < f->size ? (f->size - off < n ? f->size - off : n) : 0;
	int fd;

	switch (test_below(&state, 40)) {
	case 0 ... 23:
		write_some(f);
		break;
	case 24 ... 29:
		begin(f, "read");
		CHECK_EQ(sfs_read(f->fd, buf, n, (off_t)off), have);
		CHECK_MEM(buf, f->bytes + off, have);
		end(f, true);
		break;
	case 30 ... 31:
		begin(f, "fsync");
		CHECK_EQ(sfs_fsync(f->fd, false), 0);
		end(f, true);
		break;
	case 32:
		begin(f, "make true");
		CHECK_EQ(sfs_make_true(f->fd, false), 0);
		end(f, true);
		break;
	case 33:
		doing = "all true";
		sfs_all_true();
		check_all();
		break;
	case 34 ... 35:
		resize(f);
		break;
	case 36:
		reopen(f, 0);
		break;
	case 37:
		/* O_TRUNC while another descriptor is open. */
		if (test_below(&state, 4))
			break;
		begin(f, "open with O_TRUNC");
		f->next_size = 0;
		memset(f->next, 0, FILE_MAX);
		fd = sfs_openat(AT_FDCWD, f->path, O_WRONLY | O_TRUNC, 0);
		CHECK(fd >= 0);
		end(f, true);
		CHECK_EQ(sfs_close(fd), 0);
		break;
	case 38:
		if (f->size > FILE_MAX - 5000)
			break;
		begin(f, "fallocate");
		f->next_size += 5000;
		CHECK_EQ(sfs_fallocate(f->fd, 0, (off_t)f->size, 5000), 0);
		end(f, true);
		break;
	case 39:
		begin(f, "punch");
		memset(f->next + f->size / 2, 0, f->size / 3);
		CHECK_EQ(f->size < 3 ? 0
				     : sfs_fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(f->size / 2),
						     (off_t)(f->size / 3)),
			 0);
		if (f->size < 3)
			memcpy(f->next, f->bytes, FILE_MAX);
		end(f, true);
		break;
	}
}

int main(int argc, char **argv)
{
	static const struct pm_recorder recorder = {event, NULL};
	struct sfs_counters c;

	if (core_agent_modes(argc, argv))
		return 0;
	is_strict = strcmp(argv[1], "strict") == 0;
	state = test_seed(20261121);
	core_agent_start(&agent, argv[1]);
	/* As if there were a service thread: it would relink between two looks of ours. */
	sfs.service_state = 1;
	sfs.wake_fd = -1;
	for (int i = 0; i < FILES; i++) {
		struct file *f = &files[i];
		struct stat st;

		snprintf(f->path, sizeof(f->path), "%s/file%d", agent.root, i);
		f->raw = open(f->path, O_RDONLY | O_CREAT, 0644);
		CHECK(f->raw >= 0 && fstat(f->raw, &st) == 0);
		f->ino = st.st_ino;
		f->fd = -1;
	}
	pm_record(&recorder);
	for (int i = 0; i < FILES; i++)
		reopen(&files[i], 0);
	for (int i = 0; i < CALLS; i++)
		call(&files[test_below(&state, FILES)]);
	pm_record(NULL);
	/* The test is worth something only if the interesting paths ran. */
	sfs_log_counters((const struct sfs_log_header *)agent.log, (const struct sfs_log_stats *)(agent.log + SFS_BLOCK), &c);
	CHECK(c.append_ops > CALLS / 8 && c.overwrite_ops > CALLS / 8);
	CHECK(c.relink_ops > 100 && c.checkpoints > 10 && c.records > 1000);
	CHECK(refused < CALLS / 20 && checks > 4 * CALLS && replayed > CALLS);
	core_agent_remove(&agent);
	return 0;
}
