/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libadvise.so counts, in a file that all processes of a run map, and that `splitfs advise` reads when they are gone. The two are always
 * of one build: the numbers below need no version, only a mark.
 */
#ifndef SFS_ADVISE_H
#define SFS_ADVISE_H

#include <stdbool.h>
#include <stdint.h>

/* FILE:DIR, the counts and the directory whose files count. */
#define ADV_ENV	  "SPLITFS_ADVISE"
#define ADV_MAGIC 0x5350414456310002ull

/*
 * The library asks for a file when that pays, or with the first write (docs/data-path.md, "Without a grant"); and when it pays depends on the
 * device. Each way of doing it is counted by itself.
 */
enum adv_view {
	ADV_LAZY_HERE,	/* posix, and sync where the directory is emulated */
	ADV_EAGER_HERE, /* strict, and sync on persistent memory */
	ADV_LAZY_PMEM,	/* the same if the directory were on persistent memory */
	ADV_EAGER_PMEM,
	ADV_VIEWS
};

#define ADV_TICK (1u << 20)
#if defined(__x86_64__)
static inline uint64_t adv_ticks(void)
{
	return __builtin_ia32_rdtsc();
}
#else
static inline uint64_t adv_ticks(void)
{
	uint64_t t;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
}
#endif

enum adv_op { ADV_READ, ADV_APPEND, ADV_OVERWRITE, ADV_OPS };

/* Why the kernel serves a call on a file of the directory. */
enum adv_reason {
	ADV_FEW,    /* too few calls on the file for a grant to pay */
	ADV_LARGE,  /* emulated: the average write is as fast in the kernel */
	ADV_FORCED, /* emulated: with an fsync after fewer than 16 writes */
	ADV_LOCKED, /* a POSIX lock was taken before the file was granted */
	ADV_STREAM, /* standard streams, and stdio's own FILEs */
	ADV_MAPPED,
	ADV_ASYNC, /* POSIX and Linux AIO */
	ADV_RING,  /* the process has an io_uring */
	ADV_SENT,  /* the descriptor went through a socket */
	ADV_FLAGS, /* RWF_ flags that the library does not know */
	ADV_REASONS
};

/* Writes since the last fsync of the file. */
enum adv_gap { ADV_GAP_0, ADV_GAP_1, ADV_GAP_FEW, ADV_GAP_MANY, ADV_GAPS };
#define ADV_MANY 10u

#define ADV_SIZES 8 /* the last one has no end */
static inline unsigned adv_size(uint64_t bytes)
{
	static const uint32_t most[ADV_SIZES - 1] = {64, 512, 4096, 16384, 65536, 262144, 1048576};
	unsigned i = 0;

	while (i < ADV_SIZES - 1 && bytes > most[i])
		i++;
	return i;
}

/*
 * Times are the thread's CPU time, in nanoseconds: what else the machine does is not in them, and on persistent memory nothing is waited for.
 * Asking for that time costs more than a small read or write. So of those the processor's counter is taken, and where a call took many times as
 * long as the others of its kind (the thread was not running, or waited for the device) theirs. Of an fsync the clock's time is kept as well,
 * which without persistent memory is mostly waiting.
 */
struct adv_cell {
	uint64_t calls, bytes, cpu, wall;
};

struct adv_seen {
	struct adv_cell served[ADV_OPS][ADV_SIZES];
	struct adv_cell kernel[ADV_REASONS][ADV_OPS];
	struct adv_cell fsync; /* served; bytes: staged since the one before */
	struct adv_cell close; /* bytes that were staged and not forced when the file was closed */
	uint64_t grants;
};

/* A program that was started and can't load the library. */
#define ADV_PROGRAMS 32
enum adv_program { ADV_NO_PROGRAM, ADV_STATIC, ADV_PRIVILEGED, ADV_OTHER_MACHINE };
struct adv_program_seen {
	uint32_t state; /* 0 free, 1 being written, 2 there */
	uint32_t why;	/* enum adv_program */
	uint64_t times;
	char path[240];
};

struct adv_report {
	uint64_t magic;
	/* Of the directory; set before the run. */
	uint32_t dax, copies;
	uint32_t tick; /* nanoseconds of the processor's counter, times ADV_TICK */

	struct adv_seen views[ADV_VIEWS];
	struct adv_cell fsyncs[ADV_GAPS];
	struct adv_cell synced;		    /* writes on O_SYNC and O_DSYNC descriptors, and with RWF_SYNC, RWF_DSYNC */
	struct adv_cell direct;		    /* reads and writes on O_DIRECT descriptors */
	struct adv_cell copied;		    /* copy_file_range, sendfile, splice */
	uint64_t stream_unseen;		    /* bytes that stdio or other programs wrote to standard streams */
	uint64_t mapped, mapped_writable;   /* calls of mmap on files of the directory */
	uint64_t opens, created, names;	    /* names: changes of a directory, creations included */
	uint64_t attributes;		    /* of files and directories: modes, owners, times */
	uint64_t renames, renames_unsynced; /* of files; with writes that no fsync had made durable */
	uint64_t locks;
	uint64_t processes, users; /* that loaded it; that opened a file of the directory */
	char example[ADV_REASONS][128];
	uint32_t example_state[ADV_REASONS];
	struct adv_program_seen programs[ADV_PROGRAMS];
};

#endif
