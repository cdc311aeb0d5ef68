// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "testlib.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct environment env;

static void comment(const char *prefix, const char *format, va_list args)
{
	printf("# %s", prefix);
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
}

void fail(const char *file, int line, const char *what, const char *format, ...)
{
	va_list args;
	int saved = errno;

	printf("# %s:%d: not true: %s (errno %d: %s)\n", file, line, what, saved, strerror(saved));
	va_start(args, format);
	comment("  ", format, args);
	va_end(args);
	_exit(1);
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	comment("SKIP ", format, args);
	va_end(args);
	_exit(SKIPPED);
}

void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	comment("", format, args);
	va_end(args);
}

/* splitmix64 */
uint64_t random_number(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

bool sysfs_read(const char *attribute, unsigned long *value)
{
	char path[256];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", env.sysfs, attribute);
	f = fopen(path, "r");
	if (!f)
		return false;
	ok = fscanf(f, "%lu", value) == 1;
	fclose(f);
	return ok;
}

bool sysfs_write(const char *attribute, unsigned long value)
{
	char path[256];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", env.sysfs, attribute);
	f = fopen(path, "w");
	if (!f)
		return false;
	ok = fprintf(f, "%lu\n", value) > 0;
	return fclose(f) == 0 && ok;
}

bool fail_call(unsigned int kinds, unsigned int call, unsigned int again)
{
	return sysfs_write("simulate_fail_call", 0) && sysfs_write("simulate_fail_kinds", kinds) &&
	       sysfs_write("simulate_fail_again", again) && sysfs_write("simulate_fail_call", call);
}

bool has_failed(void)
{
	unsigned long call, again;

	check(sysfs_read("simulate_fail_call", &call) && sysfs_read("simulate_fail_again", &again), "simulate_fail_call");
	return !call && !again;
}

struct file file_new(const char *name, uint64_t room)
{
	struct file f = {.name = name, .room = room};

	unlink(name);
	f.fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	check(f.fd >= 0, "cannot create %s", name);
	f.bytes = calloc(1, room);
	check(f.bytes, "no memory for a model of %lu bytes", (unsigned long)room);
	return f;
}

/* Eight bytes that say file, age and place. */
static void fill(struct file *f, uint64_t offset, uint64_t length, unsigned int tag)
{
	uint64_t word, i;

	check(offset + length <= f->room, "the model of %s has %lu bytes", f->name, (unsigned long)f->room);
	for (i = offset; i < offset + length; i++) {
		word = (uint64_t)(uint8_t)f->name[0] << 56 | (uint64_t)(tag & 0xffffff) << 32 | (i / 8 & 0xffffffff);
		f->bytes[i] = word >> 8 * (i % 8) | 0x01;
	}
	if (offset + length > f->size)
		f->size = offset + length;
}

void file_write(struct file *f, uint64_t offset, uint64_t length, unsigned int tag)
{
	fill(f, offset, length, tag);
	check(pwrite(f->fd, f->bytes + offset, length, offset) == (ssize_t)length, "pwrite to %s", f->name);
}

void file_store(struct file *f, uint64_t offset, uint64_t length, unsigned int tag)
{
	uint64_t page = sysconf(_SC_PAGESIZE), start = offset / page * page;
	uint8_t *map;

	check(offset + length <= f->size, "a store behind the end of %s", f->name);
	map = mmap(NULL, offset + length - start, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, start);
	check(map != MAP_FAILED, "mmap of %s", f->name);
	fill(f, offset, length, tag);
	memcpy(map + (offset - start), f->bytes + offset, length);
	munmap(map, offset + length - start);
}

void file_allocate(struct file *f, uint64_t offset, uint64_t length)
{
	check(fallocate(f->fd, 0, offset, length) == 0, "fallocate of %s", f->name);
	if (offset + length > f->size)
		f->size = offset + length;
}

void file_punch(struct file *f, uint64_t offset, uint64_t length)
{
	check(fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length) == 0, "punching %s", f->name);
	if (offset < f->size)
		memset(f->bytes + offset, 0, offset + length < f->size ? length : f->size - offset);
}

void file_truncate(struct file *f, uint64_t size)
{
	check(size <= f->room, "the model of %s has %lu bytes", f->name, (unsigned long)f->room);
	check(ftruncate(f->fd, size) == 0, "truncating %s", f->name);
	if (size < f->size)
		memset(f->bytes + size, 0, f->size - size);
	f->size = size;
}

/* What was read from an offset on is what the model has there. */
static void compare(const struct file *f, const uint8_t *bytes, uint64_t offset, uint64_t length, const char *how,
		    const char *when)
{
	uint64_t i;

	if (!memcmp(bytes, f->bytes + offset, length))
		return;
	for (i = 0; bytes[i] == f->bytes[offset + i]; i++)
		;
	check(false, "%s: byte %lu of %s, %s, is %02x, not %02x", when, (unsigned long)(offset + i), f->name, how, bytes[i],
	      f->bytes[offset + i]);
}

void file_verify_mapping(const struct file *f, const uint8_t *map, uint64_t offset, uint64_t length, const char *when)
{
	const uint64_t page = sysconf(_SC_PAGESIZE), mapped = (f->size + page - 1) / page * page;
	const uint64_t end = offset + length < mapped ? offset + length : mapped;

	if (offset < end)
		compare(f, map + offset, offset, end - offset, "mapped", when);
}

void file_verify(const struct file *f, const char *when)
{
	static uint8_t buffer[MIB];
	struct stat st = file_stat(f);
	uint64_t offset;
	ssize_t n;

	check((uint64_t)st.st_size == f->size, "%s: %s has %lu bytes, not %lu", when, f->name, (unsigned long)st.st_size,
	      (unsigned long)f->size);
	for (offset = 0; offset < f->size; offset += n) {
		n = pread(f->fd, buffer, sizeof(buffer), offset);
		check(n > 0, "%s: reading %s at %lu", when, f->name, (unsigned long)offset);
		compare(f, buffer, offset, n, "read", when);
	}
}

void file_free(struct file *f)
{
	close(f->fd);
	unlink(f->name);
	free(f->bytes);
	f->bytes = NULL;
}

struct stat file_stat(const struct file *f)
{
	struct stat st;

	check(fstat(f->fd, &st) == 0, "fstat of %s", f->name);
	return st;
}

/* Calls fn for each extent of the range as the file system has it. */
static void each_extent(const struct file *f, uint64_t offset, uint64_t length,
			void (*fn)(const struct fiemap_extent *e, void *context), void *context)
{
	enum { BATCH = 200 };
	struct fiemap *map = calloc(1, sizeof(*map) + BATCH * sizeof(map->fm_extents[0]));
	uint64_t end = offset + length;
	unsigned int i;

	check(map, "no memory");
	while (offset < end) {
		const struct fiemap_extent *last;

		map->fm_start = offset;
		map->fm_length = end - offset;
		map->fm_flags = FIEMAP_FLAG_SYNC;
		map->fm_extent_count = BATCH;
		check(ioctl(f->fd, FS_IOC_FIEMAP, map) == 0, "FIEMAP of %s", f->name);
		if (!map->fm_mapped_extents)
			break;
		for (i = 0; i < map->fm_mapped_extents; i++)
			fn(&map->fm_extents[i], context);
		last = &map->fm_extents[map->fm_mapped_extents - 1];
		offset = last->fe_logical + last->fe_length;
		if (last->fe_flags & FIEMAP_EXTENT_LAST)
			break;
	}
	free(map);
}

struct block_count {
	uint64_t start, end, bytes;
	bool unwritten;
};

static void count_blocks(const struct fiemap_extent *e, void *context)
{
	struct block_count *c = context;
	uint64_t from = e->fe_logical > c->start ? e->fe_logical : c->start;
	uint64_t to = e->fe_logical + e->fe_length < c->end ? e->fe_logical + e->fe_length : c->end;

	if (from < to && (!c->unwritten || e->fe_flags & FIEMAP_EXTENT_UNWRITTEN))
		c->bytes += to - from;
}

uint64_t file_blocks(const struct file *f, uint64_t offset, uint64_t length, bool unwritten)
{
	struct block_count c = {.start = offset, .end = offset + length, .unwritten = unwritten};

	each_extent(f, offset, length, count_blocks, &c);
	return c.bytes / env.block;
}

static void count_extents(const struct fiemap_extent *e, void *context)
{
	(void)e;
	++*(unsigned long *)context;
}

unsigned long file_extents(const struct file *f)
{
	unsigned long n = 0;

	each_extent(f, 0, f->room, count_extents, &n);
	return n;
}

int relink_call(int target, struct ext4_relink *r)
{
	return ioctl(target, EXT4_IOC_RELINK, r) == 0 ? 0 : errno;
}

struct ext4_relink relink_args(const struct file *donor, uint64_t donor_offset, uint64_t target_offset, uint64_t length)
{
	return (struct ext4_relink){
		.version = EXT4_RELINK_VERSION,
		.donor_fd = donor->fd,
		.donor_offset = donor_offset,
		.target_offset = target_offset,
		.length = length,
		.new_size = target_offset + length,
	};
}

struct allocation {
	uint64_t start;
	uint64_t blocks;
	bool *allocated;
};

static void set_allocated(const struct fiemap_extent *e, void *context)
{
	struct allocation *a = context;
	uint64_t at;

	for (at = e->fe_logical; at < e->fe_logical + e->fe_length; at += env.block)
		if (at >= a->start && (at - a->start) / env.block < a->blocks)
			a->allocated[(at - a->start) / env.block] = true;
}

bool *relink_map(const struct file *donor, uint64_t offset, uint64_t length)
{
	struct allocation a = {.start = offset, .blocks = (length + env.block - 1) / env.block};

	a.allocated = calloc(a.blocks + 1, sizeof(bool));
	check(a.allocated, "no memory");
	each_extent(donor, offset, a.blocks * env.block, set_allocated, &a);
	return a.allocated;
}

void relink_model(struct file *target, struct file *donor, const struct ext4_relink *r, const bool *allocated)
{
	uint64_t done, n, rest, size;
	uint8_t replaced[64 * KIB];

	size = target->size;
	if (r->moved < r->length && !(r->flags & EXT4_RELINK_KEEP_SIZE) && r->target_offset + r->moved > size)
		size = r->target_offset + r->moved;
	else if (r->moved == r->length && r->new_size > size)
		size = r->new_size;
	check(size <= target->room, "the model of %s has %lu bytes", target->name, (unsigned long)target->room);
	target->size = size;
	for (done = 0; done < r->moved; done += n) {
		uint8_t *to = target->bytes + r->target_offset + done, *from = donor->bytes + r->donor_offset + done;

		n = r->moved - done < env.block ? r->moved - done : env.block;
		if (r->flags & EXT4_RELINK_SKIP_HOLES && !allocated[done / env.block])
			continue;
		memcpy(replaced, to, n);
		memcpy(to, from, n);
		/* The donor loses whole blocks. */
		rest = r->donor_offset + done + env.block <= donor->size ? env.block : donor->size - r->donor_offset - done;
		memset(from, 0, rest);
		if (r->flags & EXT4_RELINK_EXCHANGE)
			memcpy(from, replaced, n);
	}
}

int relink_checked(struct file *target, struct file *donor, struct ext4_relink *r)
{
	bool *allocated = relink_map(donor, r->donor_offset, r->length);
	int err = relink_call(target->fd, r);

	if (!err)
		relink_model(target, donor, r, allocated);
	free(allocated);
	file_verify(target, err ? "after a refusal" : "after relink");
	file_verify(donor, err ? "after a refusal" : "after relink");
	return err;
}
