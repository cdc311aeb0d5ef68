/* SPDX-License-Identifier: Apache-2.0 */
/* What the personalities have in common: a set of files that threads take entries of, and the calls they make. */
#ifndef BENCH_FILEBENCH_H
#define BENCH_FILEBENCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB	  1024u
#define IO_SIZE	  (1024 * KIB) /* iosize */
#define APPEND	  (16 * KIB)   /* meanappendsize */
#define PATH_SIZE 64

enum use { USE_READ, USE_ALONE };

struct entry {
	uint32_t size; /* that it is made with */
	bool there;
	int users; /* -1: one that is alone */
};

struct set {
	pthread_mutex_t lock;
	struct entry *v;
	unsigned n, width; /* names in a directory; 0: all of them */
};

/* A thread. */
struct worker {
	uint64_t random;
	uint64_t ops;
	char *buf; /* IO_SIZE bytes */
	int log;   /* descriptor */
};

/* set.c. Each call ends the program when it fails. */
uint64_t random_below(struct worker *w, uint64_t n);
/*
 * Sizes by a gamma distribution (shape 1.5), the first `percent` of the entries there. `make` writes those; without it
 * they have been written before.
 */
void set_begin(struct set *s, unsigned n, unsigned width, uint32_t mean, unsigned percent, bool make);
/* One at random that is there, or is not; never NULL. */
struct entry *set_take(struct set *s, struct worker *w, bool there, enum use use);
void set_give_back(struct set *s, struct entry *e, bool there);
void set_path(const struct set *s, const struct entry *e, char path[PATH_SIZE]);

/* calls.c: each is one operation. */
int open_file(struct worker *w, const struct set *s, const struct entry *e, int flags);
void close_file(struct worker *w, int fd);
void read_whole(struct worker *w, int fd);
void write_whole(struct worker *w, int fd, uint32_t size);
/* Up to APPEND bytes at the end. */
void append_random(struct worker *w, int fd);
void force(struct worker *w, int fd);
void stat_file(struct worker *w, const struct set *s, const struct entry *e);
void delete_file(struct worker *w, const struct set *s, const struct entry *e);

/* oltp.c: three processes. Returns the operations. */
uint64_t oltp(unsigned files, uint64_t reads, bool make);

#endif
