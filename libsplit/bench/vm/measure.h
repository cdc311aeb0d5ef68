/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured, by the measured process and by the one that asks for it. */
#ifndef BENCH_VM_MEASURE_H
#define BENCH_VM_MEASURE_H

#include <stdint.h>

#define BLOCK 4096u

/* One slice of work gives some of these. */
#define METRICS(X)                                                                                                             \
	X(M_CREATE, "open, creating")                                                                                          \
	X(M_OPEN, "open")                                                                                                      \
	X(M_CLOSE, "close")                                                                                                    \
	X(M_APPEND, "append 4 KiB")                                                                                            \
	X(M_FSYNC, "fsync after one append")                                                                                   \
	X(M_READ, "read 16 KiB")                                                                                               \
	X(M_UNLINK, "unlink")                                                                                                  \
	X(M_FILE, "one file, all of the above")                                                                                \
	X(M_CREATE_FORCED, "open, creating; fsync of the directory")                                                           \
	X(M_UNLINK_FORCED, "unlink; fsync of the directory")                                                                   \
	X(M_APPEND_ONLY, "append 4 KiB, no fsync")                                                                             \
	X(M_APPEND_10, "append 4 KiB, fsync every 10")                                                                         \
	X(M_FSYNC_10, "fsync after 10 appends")                                                                                \
	X(M_FSYNC_ALL, "fsync after all appends")                                                                              \
	X(M_APPEND_CLOSE, "close after appends")                                                                               \
	X(M_OVERWRITE, "overwrite 4 KiB")                                                                                      \
	X(M_OVERWRITE_10, "overwrite 4 KiB, fsync every 10")                                                                   \
	X(M_READ_SEQ, "read 4 KiB")                                                                                            \
	X(M_READ_RANDOM, "read 4 KiB, random")

enum metric {
#define METRIC_ID(id, name) id,
	METRICS(METRIC_ID)
#undef METRIC_ID
		METRIC_COUNT
};

/* For each operation, 0: not measured in this slice. */
struct slice {
	double ns[METRIC_COUNT];
	/* Bytes that the kernel wrote as blocks: journal, metadata, zeros. Of rows that are a whole slice. */
	double written[METRIC_COUNT];
};

/* worker.c: answers lines "SLICE COUNT" with struct slice on standard output, files in the working directory. */
int worker_main(void);

/* blocks.c: bytes written as blocks to the working directory's device since it was attached; 0 where that can't be told. */
uint64_t blocks_written(void);

/* relink.c: one size of the relink call, as the library makes it, against write(2) of the same. */
struct relink_times {
	uint64_t bytes;
	unsigned rounds;
	double relink_us[3]; /* median, least, greatest */
	double write_us[3];
};
/* Measures on the file system of dir: 0, or a negative errno value. */
int relink_measure(const char *dir, struct relink_times *t, const char **provider);

/* Median, least and greatest; sorts v. */
void spread(double *v, unsigned n, double result[3]);

#endif
