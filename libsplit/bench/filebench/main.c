/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filebench's four personalities, made again from the parameters of its workload descriptions (varmail.f, fileserver.f,
 * webserver.f, oltp.f): file sizes, threads, sizes of reads and appends, and the order of the calls are those. It runs
 * for a number of rounds and not for a time, so that what it costs can be compared. No code of filebench is in it.
 */
#include "filebench.h"

#include <fcntl.h>
#include <unistd.h>

#include "../timing.h"

static const char usage[] =
	"Usage: filebench varmail|fileserver|webserver|oltp make|run FILES ROUNDS\n"
	"\n"
	"make: the files that are there at the beginning, in the working directory. run: ROUNDS rounds of the personality, by "
	"its threads together\n"
	"(oltp: reads), and how many operations of filebench's kind that were each second. FILES as with make.\n";

static struct {
	struct set files;
	void (*round)(struct worker *w);
	_Atomic int64_t left; /* rounds */
} all;

static void read_one(struct worker *w)
{
	struct entry *e = set_take(&all.files, w, true, USE_READ);
	const int fd = open_file(w, &all.files, e, O_RDONLY);

	read_whole(w, fd);
	close_file(w, fd);
	set_give_back(&all.files, e, true);
}

static void delete_one(struct worker *w)
{
	struct entry *e = set_take(&all.files, w, true, USE_ALONE);

	delete_file(w, &all.files, e);
	set_give_back(&all.files, e, false);
}

static void varmail(struct worker *w)
{
	struct set *s = &all.files;
	struct entry *e;
	int fd;

	delete_one(w);
	e = set_take(s, w, false, USE_ALONE);
	fd = open_file(w, s, e, O_RDWR | O_CREAT);
	append_random(w, fd);
	force(w, fd);
	close_file(w, fd);
	set_give_back(s, e, true);
	e = set_take(s, w, true, USE_ALONE);
	fd = open_file(w, s, e, O_RDWR);
	read_whole(w, fd);
	append_random(w, fd);
	force(w, fd);
	close_file(w, fd);
	set_give_back(s, e, true);
	read_one(w);
}

static void fileserver(struct worker *w)
{
	struct set *s = &all.files;
	struct entry *e = set_take(s, w, false, USE_ALONE);
	int fd = open_file(w, s, e, O_RDWR | O_CREAT);

	write_whole(w, fd, e->size);
	close_file(w, fd);
	set_give_back(s, e, true);
	e = set_take(s, w, true, USE_ALONE);
	fd = open_file(w, s, e, O_RDWR);
	append_random(w, fd);
	close_file(w, fd);
	set_give_back(s, e, true);
	read_one(w);
	delete_one(w);
	e = set_take(s, w, true, USE_READ);
	stat_file(w, s, e);
	set_give_back(s, e, true);
}

static void webserver(struct worker *w)
{
	for (int i = 0; i < 10; i++)
		read_one(w);
	append_random(w, w->log);
}

/* oltp has processes of its own (oltp.c). */
static const struct personality {
	const char *name;
	void (*round)(struct worker *w);
	unsigned threads, width;
	uint32_t mean;
	unsigned percent; /* of the files there at the beginning */
} personalities[] = {
	{"varmail", varmail, 16, 0, 16 * KIB, 80},
	{"fileserver", fileserver, 50, 20, 128 * KIB, 80},
	{"webserver", webserver, 100, 20, 16 * KIB, 100},
};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->buf = calloc(1, IO_SIZE);
	w->log = all.round == webserver ? open("log", O_RDWR | O_CREAT, 0644) : -1;
	if (!w->buf || (w->log < 0 && all.round == webserver))
		fail("log");
	while (all.left-- > 0)
		all.round(w);
	if (w->log >= 0)
		close(w->log);
	free(w->buf);
	return NULL;
}

/* The operations of all threads. */
static uint64_t run(unsigned threads)
{
	struct worker *w = calloc(threads, sizeof(*w));
	pthread_t *t = calloc(threads, sizeof(*t));
	uint64_t ops = 0;

	if (!w || !t)
		fail("memory");
	for (unsigned i = 0; i < threads; i++) {
		w[i].random = 0x2545f4914f6cdd1du * (i + 1);
		errno = pthread_create(&t[i], NULL, work, &w[i]);
		if (errno)
			fail("pthread_create");
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		ops += w[i].ops;
	}
	free(t);
	free(w);
	return ops;
}

int main(int argc, char **argv)
{
	const bool help = argc == 2 && strcmp(argv[1], "--help") == 0, make = argc == 5 && strcmp(argv[2], "make") == 0;
	const struct personality *p = personalities, *end = p + sizeof(personalities) / sizeof(*p);
	unsigned long files = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
	const long rounds = argc == 5 ? strtol(argv[4], NULL, 10) : 0;
	double began;
	uint64_t ops = 0;

	while (argc == 5 && p < end && strcmp(p->name, argv[1]))
		p++;
	if (help || argc != 5 || (!make && strcmp(argv[2], "run")) || files < 10 || files > 1000000 || rounds < 1 ||
	    (p == end && strcmp(argv[1], "oltp"))) {
		fputs(usage, help ? stdout : stderr);
		return help ? 0 : 2;
	}
	if (p < end)
		set_begin(&all.files, (unsigned)files, p->width, p->mean, p->percent, make);
	began = now_ns(CLOCK_MONOTONIC);
	if (p == end) {
		ops = oltp((unsigned)files, (uint64_t)rounds, make);
	} else if (!make) {
		all.round = p->round;
		all.left = rounds;
		ops = run(p->threads);
	}
	if (!make)
		printf("%s: %.1f operations/s\n", argv[1], (double)ops / ((now_ns(CLOCK_MONOTONIC) - began) / 1e9));
	free(all.files.v);
	return 0;
}
