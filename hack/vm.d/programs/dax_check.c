/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that DAX is real, or that it is not: what statx says, what MAP_SYNC
 * says, which page faults the kernel served with 2 MiB mappings (its own
 * tracepoints), and that a store through a mapping is in the device's memory at
 * once.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HUGE	(2ul << 20)
#define PAGE	4096ul
#define TRACING "/sys/kernel/tracing/"

static const char usage[] = "Usage: dax_check dax DIR DEVICE   DIR, on DEVICE, has everything that DAX "
			    "promises\n"
			    "       dax_check used DIR DEVICE  the same on a volume in use, which may have no whole "
			    "2 MiB free: what is whole is mapped by one fault\n"
			    "       dax_check none DIR         the control: DIR has nothing of it, and "
			    "this program notices\n"
			    "       dax_check huge FILE...     each whole 2 MiB of these files is "
			    "mapped by one fault\n"
			    "       dax_check age DIR SEED     fill the volume of DIR with files of "
			    "random sizes and delete most of them, three times\n"
			    "       dax_check free DIR N       at least N aligned units of 2 MiB are "
			    "free on the volume of DIR\n";

#define FAIL(...) (fprintf(stderr, "dax_check: " __VA_ARGS__), fputc('\n', stderr), exit(1))

static void put(const char *file, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), TRACING "%s", file);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		FAIL("%s: %s", path, strerror(errno));
	close(fd);
}

struct faults {
	long all;      /* page faults of this process, from getrusage */
	long huge;     /* 2 MiB faults that DAX served */
	long fallback; /* 2 MiB faults that DAX refused: 4 KiB pages instead */
};

/* Touch every page of a mapping for writing, or for reading, and tell how the
 * kernel served the faults. */
static struct faults touch(char *map, size_t len, bool writing)
{
	struct rusage before, after;
	struct faults f = {0};
	char line[1024], self[16];
	FILE *trace;

	/*
	 * Only this process's faults are counted, by reading and not by set_event_pid; and the kernel is not to record names of processes.
	 * Both would patch the scheduler's code while it runs, which emulated processors do not always survive.
	 */
	snprintf(self, sizeof(self), "-%d ", getpid());
	put("options/record-cmd", "0");
	put("buffer_size_kb", "8192");
	put("trace", "\n");
	put("events/fs_dax/dax_pmd_fault_done/enable", "1");
	getrusage(RUSAGE_SELF, &before);
	for (size_t i = 0; i < len; i += PAGE) {
		if (writing)
			*(volatile char *)(map + i) = (char)(i / PAGE);
		else
			(void)*(volatile char *)(map + i);
	}
	getrusage(RUSAGE_SELF, &after);
	put("events/fs_dax/dax_pmd_fault_done/enable", "0");
	f.all = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt;
	trace = fopen(TRACING "trace", "r");
	if (!trace)
		FAIL("%strace: %s", TRACING, strerror(errno));
	while (fgets(line, sizeof(line), trace)) {
		if (!strstr(line, self) || !strstr(line, "dax_pmd_fault_done:"))
			continue;
		if (strstr(line, "NOPAGE"))
			f.huge++;
		else
			f.fallback++;
	}
	fclose(trace);
	return f;
}

/* An address for a file mapping that is congruent to the file's offset modulo 2
 * MiB. */
static void *map_aligned(int fd, size_t len, int flags)
{
	char *room = mmap(NULL, len + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at;

	if (room == MAP_FAILED)
		FAIL("no room for a mapping of %zu bytes", len);
	at = (char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));
	return mmap(at, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
}

static bool statx_says_dax(const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &st) < 0)
		FAIL("statx %s: %s", path, strerror(errno));
	if (!(st.stx_attributes_mask & STATX_ATTR_DAX))
		return false;
	return st.stx_attributes & STATX_ATTR_DAX;
}

static int create(const char *path, size_t len)
{
	static char zeros[HUGE];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || posix_fallocate(fd, 0, (off_t)len) != 0)
		FAIL("%s: %s", path, strerror(errno));
	/* Written once: a fault on an unwritten block is a journal commit each. */
	for (size_t i = 0; i < len; i += HUGE)
		if (pwrite(fd, zeros, HUGE, (off_t)i) != (ssize_t)HUGE)
			FAIL("%s: %s", path, strerror(errno));
	if (fsync(fd) < 0)
		FAIL("fsync %s: %s", path, strerror(errno));
	return fd;
}

/* Where byte 0 of a file is on its device. */
static uint64_t physical(int fd, const char *path)
{
	union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
	} u;

	memset(&u, 0, sizeof(u));
	u.map.fm_length = PAGE;
	u.map.fm_extent_count = 1;
	if (ioctl(fd, FS_IOC_FIEMAP, &u.map) < 0 || u.map.fm_mapped_extents != 1)
		FAIL("%s: its first block cannot be found: %s", path, strerror(errno));
	return u.map.fm_extents[0].fe_physical;
}

/* A store through the mapping, then a read of the device past every cache, with
 * no flush of any kind between. */
static void check_memory_is_device(int fd, const char *path, char *map, const char *device)
{
	static char want[PAGE];
	char *found = NULL;
	uint64_t at = physical(fd, path);
	int dev = open(device, O_RDONLY | O_DIRECT);

	if (dev < 0 || posix_memalign((void **)&found, PAGE, PAGE) != 0)
		FAIL("%s: %s", device, strerror(errno));
	for (size_t i = 0; i < PAGE; i++)
		want[i] = (char)(i * 37 + 11);
	memcpy(map, want, PAGE);
	if (pread(dev, found, PAGE, (off_t)at) != (ssize_t)PAGE)
		FAIL("%s at %" PRIu64 ": %s", device, at, strerror(errno));
	if (memcmp(found, want, PAGE) != 0)
		FAIL("what was stored through the mapping of %s is not at byte %" PRIu64 " of %s", path, at, device);
	printf("a store is on the device (byte %" PRIu64 ") at once, without a flush\n", at);
	free(found);
	close(dev);
}

/* How many whole 2 MiB of a file are one piece of the device that begins at a multiple of 2 MiB. */
static size_t whole_units(int fd, const char *path, size_t len)
{
	size_t whole = 0;

	for (size_t at = 0; at < len; at += HUGE) {
		union {
			struct fiemap map;
			char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
		} u;
		const struct fiemap_extent *e = u.map.fm_extents;

		memset(&u, 0, sizeof(u));
		u.map.fm_start = at;
		u.map.fm_length = HUGE;
		u.map.fm_extent_count = 1;
		if (ioctl(fd, FS_IOC_FIEMAP, &u.map) < 0 || u.map.fm_mapped_extents != 1)
			FAIL("%s: its blocks cannot be found: %s", path, strerror(errno));
		whole += e->fe_logical <= at && e->fe_logical + e->fe_length >= at + HUGE &&
			 (e->fe_physical + at - e->fe_logical) % HUGE == 0;
	}
	return whole;
}

static void check_dax(const char *dir, const char *device, bool used)
{
	const size_t len = 64ul << 20;
	size_t whole = len / HUGE;
	struct faults f;
	char path[4096];
	long refused;
	char *map;
	int fd;

	snprintf(path, sizeof(path), "%s/dax_check.data", dir);
	fd = create(path, len);
	if (!statx_says_dax(path))
		FAIL("statx does not say DAX for %s", path);
	printf("statx says DAX\n");
	map = map_aligned(fd, len, MAP_SHARED_VALIDATE | MAP_SYNC);
	if (map == MAP_FAILED)
		FAIL("MAP_SYNC mapping of %s: %s", path, strerror(errno));
	printf("a MAP_SYNC mapping is granted\n");
	f = touch(map, len, true);
	if (used)
		whole = whole_units(fd, path, len);
	printf("%zu MiB touched: %ld faults, %ld of them 2 MiB, %ld refused as 2 MiB\n", len >> 20, f.all, f.huge, f.fallback);
	refused = (long)(len / HUGE - whole);
	/* Some kernels try a place that they refused a second time. */
	if (f.huge != (long)whole || f.fallback < refused || (refused == 0 && f.fallback > 0) ||
	    (whole == len / HUGE && f.all > (long)whole + 8))
		FAIL("expected %zu of %zu mappings to be of 2 MiB, as many as the file has whole", whole, len / HUGE);
	check_memory_is_device(fd, path, map, device);
	munmap(map, len);
	close(fd);
	unlink(path);
}

static void check_none(const char *dir)
{
	const size_t len = 16ul << 20;
	struct faults f;
	char path[4096];
	char *map;
	int fd;

	snprintf(path, sizeof(path), "%s/dax_check.data", dir);
	fd = create(path, len);
	if (statx_says_dax(path))
		FAIL("statx says DAX for %s", path);
	map = map_aligned(fd, len, MAP_SHARED_VALIDATE | MAP_SYNC);
	if (map != MAP_FAILED)
		FAIL("a MAP_SYNC mapping of %s is granted", path);
	if (errno != EOPNOTSUPP)
		FAIL("MAP_SYNC mapping of %s: %s, expected EOPNOTSUPP", path, strerror(errno));
	map = map_aligned(fd, len, MAP_SHARED);
	if (map == MAP_FAILED)
		FAIL("mapping of %s: %s", path, strerror(errno));
	f = touch(map, len, true);
	printf("no DAX: statx and MAP_SYNC say so; %zu MiB touched: %ld faults, %ld "
	       "of 2 MiB\n",
	       len >> 20, f.all, f.huge);
	if (f.huge != 0)
		FAIL("2 MiB DAX faults where there is no DAX");
	munmap(map, len);
	close(fd);
	unlink(path);
}

static void check_huge(char **paths)
{
	size_t whole = 0, huge = 0;
	int files = 0;

	for (; *paths; paths++, files++) {
		int fd = open(*paths, O_RDWR);
		struct faults f;
		struct stat st;
		size_t len;
		char *map;

		if (fd < 0 || fstat(fd, &st) < 0)
			FAIL("%s: %s", *paths, strerror(errno));
		len = (size_t)st.st_size & ~(HUGE - 1);
		if (len == 0)
			FAIL("%s is smaller than 2 MiB", *paths);
		map = map_aligned(fd, len, MAP_SHARED_VALIDATE | MAP_SYNC);
		if (map == MAP_FAILED)
			FAIL("MAP_SYNC mapping of %s: %s", *paths, strerror(errno));
		f = touch(map, len, false);
		if (f.huge != (long)(len / HUGE))
			fprintf(stderr,
				"%s: %ld of %zu mappings are 2 MiB (%ld refused, %ld faults in "
				"all)\n",
				*paths, f.huge, len / HUGE, f.fallback, f.all);
		whole += len / HUGE;
		huge += (size_t)f.huge;
		munmap(map, len);
		close(fd);
	}
	printf("%d files: %zu of %zu mappings are 2 MiB\n", files, huge, whole);
	if (huge != whole || files == 0)
		FAIL("not every whole 2 MiB is mapped by one fault");
}

static uint64_t state;

static uint64_t below(uint64_t n)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return ((state * 0x2545f4914f6cdd1dull) >> 33) % n;
}

/*
 * Leaves every 20th file of three rounds, spread over the device: free space in many pieces, of which few are whole aligned units of
 * 2 MiB. The first round fills the volume to nine tenths, the later ones a third of it.
 */
static void age(const char *dir, uint64_t seed)
{
	static char data[1 << 20];
	uint64_t bytes = 0;
	long made = 0, left = 0;

	state = seed ? seed : 1;
	memset(data, 'a', sizeof(data));
	for (int round = 0; round < 3; round++) {
		uint64_t room;
		struct statvfs fs;
		char path[4096];
		long count = 0;

		if (statvfs(dir, &fs) < 0)
			FAIL("statvfs %s: %s", dir, strerror(errno));
		room = fs.f_bavail * fs.f_bsize;
		room = round == 0 ? room / 10 * 9 : room / 3;
		for (uint64_t used = 0; used < room; count++) {
			size_t len = below(8) ? 1 + below(16 << 10) : 1 + below(sizeof(data));
			int fd;

			snprintf(path, sizeof(path), "%s/%d-%ld", dir, round, count);
			fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
			if (fd < 0 || write(fd, data, len) != (ssize_t)len || close(fd) < 0)
				FAIL("%s: %s", path, strerror(errno));
			used += (len + PAGE - 1) & ~(PAGE - 1);
			bytes += len;
		}
		for (long i = 0; i < count; i++) {
			if (below(20) == 0) {
				left++;
				continue;
			}
			snprintf(path, sizeof(path), "%s/%d-%ld", dir, round, i);
			if (unlink(path) < 0)
				FAIL("%s: %s", path, strerror(errno));
		}
		made += count;
	}
	printf("aged: %ld files and %" PRIu64 " MiB written, %ld files left (seed %" PRIu64 ")\n", made, bytes >> 20, left,
	       seed);
}

/* Free space as the file system itself knows it. */
static void check_free(const char *dir, uint64_t least)
{
	enum { RECORDS = 512 };
	struct fsmap_head *head = calloc(1, fsmap_sizeof(RECORDS));
	uint64_t bytes = 0, units = 0, pieces = 0;
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	bool last = false;

	if (fd < 0 || !head)
		FAIL("%s: %s", dir, strerror(errno));
	head->fmh_count = RECORDS;
	head->fmh_keys[1] = (struct fsmap){.fmr_device = UINT32_MAX,
					   .fmr_flags = UINT32_MAX,
					   .fmr_physical = UINT64_MAX,
					   .fmr_owner = UINT64_MAX,
					   .fmr_offset = UINT64_MAX};
	while (!last) {
		if (ioctl(fd, FS_IOC_GETFSMAP, head) < 0)
			FAIL("the map of %s cannot be read: %s", dir, strerror(errno));
		if (head->fmh_entries == 0)
			break;
		for (uint32_t i = 0; i < head->fmh_entries; i++) {
			const struct fsmap *r = &head->fmh_recs[i];
			const uint64_t first = (r->fmr_physical + HUGE - 1) & ~(HUGE - 1);
			const uint64_t end = (r->fmr_physical + r->fmr_length) & ~(HUGE - 1);

			last = r->fmr_flags & FMR_OF_LAST;
			if (!(r->fmr_flags & FMR_OF_SPECIAL_OWNER) || r->fmr_owner != FMR_OWN_FREE)
				continue;
			bytes += r->fmr_length;
			pieces++;
			units += end > first ? (end - first) / HUGE : 0;
		}
		fsmap_advance(head);
	}
	printf("free: %" PRIu64 " MiB in %" PRIu64 " pieces, %" PRIu64 " aligned units of 2 MiB\n", bytes >> 20, pieces, units);
	if (units < least)
		FAIL("expected %" PRIu64 " free units or more", least);
	free(head);
	close(fd);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && strcmp(argv[1], "dax") == 0)
		check_dax(argv[2], argv[3], false);
	else if (argc == 4 && strcmp(argv[1], "used") == 0)
		check_dax(argv[2], argv[3], true);
	else if (argc == 3 && strcmp(argv[1], "none") == 0)
		check_none(argv[2]);
	else if (argc >= 3 && strcmp(argv[1], "huge") == 0)
		check_huge(argv + 2);
	else if (argc == 4 && strcmp(argv[1], "age") == 0)
		age(argv[2], strtoull(argv[3], NULL, 0));
	else if (argc == 4 && strcmp(argv[1], "free") == 0)
		check_free(argv[2], strtoull(argv[3], NULL, 0));
	else {
		bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

		fputs(usage, help ? stdout : stderr);
		return help ? 0 : 2;
	}
	return 0;
}
