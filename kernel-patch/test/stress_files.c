// SPDX-License-Identifier: GPL-2.0
/* The files of the stress: made, and looked at word by word. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/quota.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "space.h"
#include "stress.h"

#define MARK	   0x5b11f50000000000u /* the upper bytes of every word */
#define GROUP_BITS (0xffUL << 32)
#define UPPER_BITS (~0UL << 32)

/* How many complaints are shown. */
enum { SHOWN = 5 };

struct stress *stress;
int group_fds[GROUPS][FILES], bystander_fds[BYSTANDERS];
uint8_t *group_maps[GROUPS][FILES], *bystander_maps[BYSTANDERS];
static bool with_quota;

void count(enum counter c, uint64_t n)
{
	__atomic_fetch_add(&stress->counters[c], n, __ATOMIC_RELAXED);
}

void wrong(const char *format, ...)
{
	char line[256];
	va_list args;

	if (__atomic_fetch_add(&stress->wrong, 1, __ATOMIC_RELAXED) >= SHOWN || stress->control)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	note("%s", line);
}

uint64_t mark(unsigned int group, uint64_t at)
{
	return MARK | (uint64_t)(group + 1) << 32 | (at / 8 & 0xffffffff);
}

/*
 * While others are writing, a word may be seen half written: then it has no group or the right one, and the rest is not
 * judged.
 */
static bool is_right_moving(unsigned int group, uint64_t word, uint64_t at)
{
	return !(word & GROUP_BITS) || !((word ^ mark(group, at)) & GROUP_BITS);
}

/* A word is zero or its group's, and where in a block it was written: whole blocks move. */
static bool is_right_at_rest(unsigned int group, uint64_t word, uint64_t at)
{
	return !word || !((word ^ mark(group, at)) & (UPPER_BITS | (env.block / 8 - 1)));
}

static bool is_right_bystander(unsigned int group, uint64_t word, uint64_t at)
{
	return word == mark(group, at);
}

/* Each word that is not right is one that is wrong. */
static void look(unsigned int group, const uint64_t *words, size_t n, uint64_t at, const char *where,
		 bool (*is_right)(unsigned int group, uint64_t word, uint64_t at))
{
	uint64_t word;
	size_t i;

	for (i = 0; i < n; i++) {
		word = ((const volatile uint64_t *)words)[i];
		if (!is_right(group, word, at + 8 * i))
			wrong("group %u: byte %lu, %s, holds %016lx", group, (unsigned long)(at + 8 * i), where,
			      (unsigned long)word);
	}
	count(WORDS, n);
}

void look_at_moving(unsigned int group, const uint64_t *words, size_t n, uint64_t at)
{
	look(group, words, n, at, "while it is written to", is_right_moving);
}

void look_at_bystander(unsigned int number, const uint64_t *words, size_t n, uint64_t at)
{
	look(GROUPS + number, words, n, at, "of a bystander", is_right_bystander);
}

static int new_file(const char *kind, unsigned int a, unsigned int b, uint64_t size, uint8_t **map)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "%s-%u-%u", kind, a, b);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	check(fd >= 0 && ftruncate(fd, size) == 0, "%s", name);
	*map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(*map != MAP_FAILED, "mmap of %s", name);
	return fd;
}

static void fill_with_marks(int fd, unsigned int group, uint64_t size)
{
	uint64_t *words = malloc(size), i;

	check(words, "no memory");
	for (i = 0; i < size / 8; i++)
		words[i] = mark(group, 8 * i);
	check(pwrite(fd, words, size, 0) == (ssize_t)size && fsync(fd) == 0, "writing");
	free(words);
}

/* Half of it is there, and no block more to be had for its owner. */
static void limit(unsigned int f)
{
	const int fd = group_fds[LIMITED][f];
	const unsigned int user = FIRST_USER + f;

	check(fchown(fd, user, user) == 0, "fchown");
	fill_with_marks(fd, LIMITED, FILE_SIZE / 2);
	if (with_quota)
		quota_limit(USRQUOTA, user, quota_used(USRQUOTA, user));
}

void stress_begin(void)
{
	unsigned int g, f;

	with_quota = has_quota();
	for (g = 0; g < GROUPS; g++)
		for (f = 0; f < FILES; f++)
			group_fds[g][f] = new_file("stress", g, f, FILE_SIZE, &group_maps[g][f]);
	for (f = 0; f < FILES; f++)
		limit(f);
	for (f = 0; f < BYSTANDERS; f++) {
		bystander_fds[f] = new_file("bystander", f, 0, BYSTANDER_SIZE, &bystander_maps[f]);
		fill_with_marks(bystander_fds[f], GROUPS + f, BYSTANDER_SIZE);
	}
}

static uint64_t size_of(int fd)
{
	struct stat st;

	check(fstat(fd, &st) == 0, "fstat");
	return st.st_size;
}

/* All of a file at rest by pread, or by its mapping where there is one. */
static void look_at_all(int fd, unsigned int group, const uint8_t *map, const char *where)
{
	const uint64_t size = size_of(fd);
	uint64_t *words = malloc(size + 1);

	check(words, "no memory");
	if (map)
		memcpy(words, map, size);
	else if (pread(fd, words, size, 0) != (ssize_t)size)
		wrong("group %u: a file cannot be read at the end: %s", group, strerror(errno));
	look(group, words, size / 8, 0, where, group < GROUPS ? is_right_at_rest : is_right_bystander);
	if (group >= GROUPS && size != BYSTANDER_SIZE)
		wrong("group %u: a bystander has %lu bytes", group, (unsigned long)size);
	free(words);
}

/* Once read, once mapped, and once when nothing of it is in memory: without DAX that is another matter. */
static void look_three_times(int fd, unsigned int group, uint8_t *map, uint64_t size)
{
	look_at_all(fd, group, NULL, "read at the end");
	look_at_all(fd, group, map, "mapped at the end");
	munmap(map, size);
	if (fsync(fd))
		wrong("group %u: fsync: %s", group, strerror(errno));
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	look_at_all(fd, group, NULL, "from the medium");
}

/* An owner of one file is charged what that has. */
static void look_at_charges(unsigned int f)
{
	const uint64_t used = quota_used(USRQUOTA, FIRST_USER + f);
	struct stat st;

	check(fstat(group_fds[LIMITED][f], &st) == 0, "fstat");
	if (used != (uint64_t)st.st_blocks * 512)
		wrong("user %u is charged %lu bytes for %lu", FIRST_USER + f, (unsigned long)used,
		      (unsigned long)st.st_blocks * 512);
	quota_limit(USRQUOTA, FIRST_USER + f, 0);
}

void stress_end(void)
{
	unsigned int g, f;

	sync();
	for (g = 0; g < GROUPS; g++)
		for (f = 0; f < FILES; f++)
			look_three_times(group_fds[g][f], g, group_maps[g][f], FILE_SIZE);
	for (f = 0; f < BYSTANDERS; f++)
		look_three_times(bystander_fds[f], GROUPS + f, bystander_maps[f], BYSTANDER_SIZE);
	for (f = 0; with_quota && f < FILES; f++)
		look_at_charges(f);
}

/* Is the one word seen that is in a file now and does not belong there? */
static bool notices(int fd, unsigned int group, uint64_t word)
{
	const uint64_t before = stress->wrong, at = BYSTANDER_SIZE / 2;
	bool seen;

	check(pwrite(fd, &word, 8, at) == 8, "pwrite");
	stress->control = true;
	look_at_all(fd, group, NULL, "spoilt");
	stress->control = false;
	seen = stress->wrong == before + 1;
	stress->wrong = before;
	return seen;
}

bool stress_notices(void)
{
	check(ftruncate(group_fds[0][0], 0) == 0 && ftruncate(group_fds[0][0], FILE_SIZE) == 0, "truncating");
	return notices(group_fds[0][0], 0, mark(1, BYSTANDER_SIZE / 2)) && notices(bystander_fds[0], GROUPS, 0);
}
