/* SPDX-License-Identifier: Apache-2.0 */
/* A set of files: sizes, directories, and who has which entry. */
#include "filebench.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../timing.h"

#define SEED 0x9e3779b97f4a7c15u

uint64_t random_below(struct worker *w, uint64_t n)
{
	return (next_random(&w->random) >> 11) % n;
}

/* Above 0, up to 1. */
static double uniform(struct worker *w)
{
	return (double)(random_below(w, 1u << 30) + 1) / (1u << 30);
}

/* Shape 1.5 is the sum of 1, an exponential, and 0.5, half the square of a normal. */
static double gamma_of(struct worker *w, double mean)
{
	const double normal = sqrt(-2 * log(uniform(w))) * cos(2 * M_PI * uniform(w));

	return mean / 1.5 * (normal * normal / 2 - log(uniform(w)));
}

/* Directories are the digits of the number, in base `width`, without the last one. */
static void make_directories(const struct set *s, const struct entry *e)
{
	char path[PATH_SIZE];

	set_path(s, e, path);
	for (char *p = path; (p = strchr(p, '/')); *p++ = '/') {
		*p = 0;
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			fail(path);
	}
}

void set_begin(struct set *s, unsigned n, unsigned width, uint32_t mean, unsigned percent, bool make)
{
	struct worker w = {.random = SEED, .buf = calloc(1, IO_SIZE)};

	pthread_mutex_init(&s->lock, NULL);
	s->v = calloc(n, sizeof(*s->v));
	s->n = n;
	s->width = width;
	if (!s->v || !w.buf)
		fail("memory");
	for (struct entry *e = s->v; e < s->v + n; e++) {
		e->size = (uint32_t)gamma_of(&w, mean);
		e->there = (uint64_t)(e - s->v) * 100 < (uint64_t)n * percent;
		if (!make)
			continue;
		make_directories(s, e);
		if (e->there) {
			const int fd = open_file(&w, s, e, O_WRONLY | O_CREAT);

			write_whole(&w, fd, e->size);
			close_file(&w, fd);
		}
	}
	free(w.buf);
}

struct entry *set_take(struct set *s, struct worker *w, bool there, enum use use)
{
	for (;;) {
		const unsigned first = (unsigned)random_below(w, s->n);

		pthread_mutex_lock(&s->lock);
		for (unsigned i = 0; i < s->n; i++) {
			struct entry *e = &s->v[(first + i) % s->n];

			if (e->there != there || e->users < 0 || (use == USE_ALONE && e->users > 0))
				continue;
			e->users = use == USE_ALONE ? -1 : e->users + 1;
			pthread_mutex_unlock(&s->lock);
			return e;
		}
		pthread_mutex_unlock(&s->lock);
		usleep(100); /* another thread gives one back */
	}
}

void set_give_back(struct set *s, struct entry *e, bool there)
{
	pthread_mutex_lock(&s->lock);
	e->users = e->users < 0 ? 0 : e->users - 1;
	e->there = there;
	pthread_mutex_unlock(&s->lock);
}

void set_path(const struct set *s, const struct entry *e, char path[PATH_SIZE])
{
	const unsigned number = (unsigned)(e - s->v);
	size_t n = 0;

	for (unsigned leaf = s->width ? number / s->width : 0; leaf > 0 && n < PATH_SIZE / 2; leaf /= s->width)
		n += (size_t)snprintf(path + n, PATH_SIZE - n, "d%u/", leaf % s->width);
	snprintf(path + n, PATH_SIZE - n, "f%u", number);
}
