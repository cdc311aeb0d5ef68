/* SPDX-License-Identifier: Apache-2.0 */
/* Plays programs plainly and under the library, compares, and shrinks what differs. */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what, const char *name)
{
	fprintf(stderr, "model: %s %s: %s\n", what, name, strerror(errno));
	exit(2);
}

static void run_to_end(char *const args[], const char *dir, const char *out)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		die("fork for", args[0]);
	if (pid == 0) {
		char errors[PATH_MAX + 64];
		int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600), err;

		/* what is said on standard error (no agent, for example) is no part of the comparison */
		snprintf(errors, sizeof(errors), "%s.err", out);
		err = open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
		if (fd < 0 || err < 0 || chdir(dir) < 0 || dup2(fd, 1) < 0 || dup2(err, 2) < 0)
			_exit(126);
		close(fd);
		close(err);
		execvp(args[0], args);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		die("wait for", args[0]);
	if (status) {
		FILE *f = fopen(out, "a");

		if (f) {
			fprintf(f, "ended with status %x\n", status);
			fclose(f);
		}
	}
}

static void remove_tree(const char *path)
{
	char *const args[] = {"rm", "-rf", "--", (char *)path, NULL};

	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execvp(args[0], args);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
		die("remove", path);
}

/* Play in a fresh directory work/side; the trace goes to work/side.trace. */
static void play_side(const struct check *c, uint64_t seed, const char *only, bool plain)
{
	char dir[PATH_MAX], trace[PATH_MAX + 8], seed_arg[24], count[16], preload[PATH_MAX], config[PATH_MAX + 64];
	char *args[16];
	int n = 0;

	snprintf(dir, sizeof(dir), "%s/%s", c->work, plain ? "plain" : "library");
	snprintf(trace, sizeof(trace), "%s.trace", dir);
	snprintf(seed_arg, sizeof(seed_arg), "%llu", (unsigned long long)seed);
	snprintf(count, sizeof(count), "%d", c->length);
	remove_tree(dir);
	if (mkdir(dir, 0700) < 0)
		die("make", dir);
	args[n++] = "timeout";
	args[n++] = "60";
	if (!plain && c->splitfs) {
		args[n++] = (char *)c->splitfs;
		args[n++] = "run";
		args[n++] = "--mode";
		args[n++] = (char *)c->mode;
		args[n++] = "--dir";
		args[n++] = (char *)c->work;
		args[n++] = "--";
	} else if (!plain) {
		snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", c->preload);
		snprintf(config, sizeof(config), "SPLITFS_CONFIG=%s:%s:/nonexistent", c->mode, c->work);
		args[n++] = "env";
		args[n++] = preload;
		args[n++] = config;
	}
	args[n++] = (char *)c->self;
	args[n++] = "play";
	args[n++] = seed_arg;
	args[n++] = count;
	args[n++] = (char *)(only ? only : "-");
	args[n] = NULL;
	run_to_end(args, dir, trace);
}

static char *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	char *data;
	size_t n = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		die("read", path);
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		die("read", path);
	for (ssize_t r; n < (size_t)st.st_size && (r = read(fd, data + n, (size_t)st.st_size - n)) > 0;)
		n += (size_t)r;
	data[n] = 0;
	close(fd);
	*size = n;
	return data;
}

/* The first line that differs; an empty string when none does. */
static bool same_traces(const char *a, const char *b, char *difference, size_t room)
{
	size_t na, nb, i = 0;
	char *ta = read_file(a, &na), *tb = read_file(b, &nb);
	bool same = na == nb && memcmp(ta, tb, na) == 0;

	if (!same) {
		while (i < na && i < nb && ta[i] == tb[i])
			i++;
		while (i > 0 && ta[i - 1] != '\n')
			i--;
		snprintf(difference, room, "plain:   %.*s\nlibrary: %.*s", (int)strcspn(ta + i, "\n"), ta + i,
			 (int)strcspn(tb + i, "\n"), tb + i);
	}
	free(ta);
	free(tb);
	return same;
}

static bool same_trees(const char *work, char *difference, size_t room)
{
	char a[PATH_MAX], b[PATH_MAX];
	int found[2] = {0, 0};

	for (int i = 0; i < NAMES; i++) {
		struct stat sa, sb;
		size_t na, nb, at = 0;
		bool ea, eb;
		char *da, *db;

		snprintf(a, sizeof(a), "%s/plain/f%d", work, i);
		snprintf(b, sizeof(b), "%s/library/f%d", work, i);
		ea = stat(a, &sa) == 0;
		eb = stat(b, &sb) == 0;
		if (ea != eb) {
			snprintf(difference, room, "f%d exists only %s", i, ea ? "plainly" : "under the library");
			return false;
		}
		if (!ea)
			continue;
		da = read_file(a, &na);
		db = read_file(b, &nb);
		while (at < na && at < nb && da[at] == db[at])
			at++;
		free(da);
		free(db);
		if (na != nb || at != na) {
			snprintf(difference, room, "f%d: %zu bytes plainly, %zu under the library, different from offset %zu",
				 i, na, nb, at);
			return false;
		}
		if (sa.st_nlink != sb.st_nlink || sa.st_mode != sb.st_mode) {
			snprintf(difference, room, "f%d: links %d and %d, mode %o and %o", i, (int)sa.st_nlink,
				 (int)sb.st_nlink, sa.st_mode, sb.st_mode);
			return false;
		}
	}
	/* and nothing else */
	for (int side = 0; side < 2; side++) {
		DIR *d;

		snprintf(a, sizeof(a), "%s/%s", work, side ? "library" : "plain");
		d = opendir(a);
		if (!d)
			die("list", a);
		while (readdir(d))
			found[side]++;
		closedir(d);
	}
	snprintf(difference, room, "%d and %d directory entries", found[0], found[1]);
	return found[0] == found[1];
}

static bool same(const struct check *c, uint64_t seed, const char *only, char *difference, size_t room)
{
	char a[PATH_MAX], b[PATH_MAX];

	play_side(c, seed, only, true);
	play_side(c, seed, only, false);
	snprintf(a, sizeof(a), "%s/plain.trace", c->work);
	snprintf(b, sizeof(b), "%s/library.trace", c->work);
	return same_traces(a, b, difference, room) && same_trees(c->work, difference, room);
}

static void write_only(const char *path, const int *ops, int n)
{
	FILE *f = fopen(path, "w");

	if (!f)
		die("write", path);
	for (int i = 0; i < n; i++)
		fprintf(f, "%d\n", ops[i]);
	if (fclose(f) != 0)
		die("write", path);
}

/* Leave out ever smaller pieces as long as the rest still fails. */
static int shrink(const struct check *c, uint64_t seed, int *ops, int n, const char *only)
{
	int *less = malloc((size_t)n * sizeof(*less)), runs = 0;
	char ignored[512];

	if (!less)
		die("shrink", only);
	for (int piece = n / 2; piece >= 1; piece /= 2) {
		for (int at = 0; at < n && runs < 600;) {
			int skip = piece < n - at ? piece : n - at;

			memcpy(less, ops, (size_t)at * sizeof(*ops));
			memcpy(less + at, ops + at + skip, (size_t)(n - at - skip) * sizeof(*ops));
			write_only(only, less, n - skip);
			runs++;
			if (same(c, seed, only, ignored, sizeof(ignored))) {
				at += piece;
			} else {
				n -= skip;
				memcpy(ops, less, (size_t)n * sizeof(*ops));
			}
		}
	}
	free(less);
	write_only(only, ops, n);
	return n;
}

/* Keep what the failed run said, before it is run again. */
static void keep_traces(const struct check *c)
{
	static const char *const names[] = {"plain.trace", "library.trace", "library.trace.err"};
	char from[PATH_MAX], to[PATH_MAX + 8];

	for (int i = 0; i < 3; i++) {
		snprintf(from, sizeof(from), "%s/%s", c->work, names[i]);
		snprintf(to, sizeof(to), "%s.failed", from);
		if (rename(from, to) < 0)
			die("keep", from);
	}
}

/* A race need not show again: then there is nothing to shrink. */
static bool fails_again(const struct check *c, uint64_t seed)
{
	char ignored[512];

	for (int i = 0; i < 8; i++)
		if (!same(c, seed, NULL, ignored, sizeof(ignored)))
			return true;
	return false;
}

static void report(const struct check *c, uint64_t seed, const char *first_difference)
{
	char only[PATH_MAX], difference[512] = "";
	int n = c->length, *ops = calloc((size_t)n, sizeof(*ops));

	if (!ops)
		die("report", c->work);
	printf("DIFFERENT: mode %s seed %llu length %d\n%s\n", c->mode, (unsigned long long)seed, c->length, first_difference);
	keep_traces(c);
	if (!fails_again(c, seed)) {
		printf("not once more in 8 runs: a race, or the machine; traces: %s/*.failed\n", c->work);
		free(ops);
		return;
	}
	printf("shrinking ...\n");
	fflush(stdout);
	snprintf(only, sizeof(only), "%s/only", c->work);
	for (int i = 0; i < n; i++)
		ops[i] = i;
	n = shrink(c, seed, ops, n, only);
	if (same(c, seed, only, difference, sizeof(difference)))
		snprintf(difference, sizeof(difference), "(not every time)");
	printf("%d operations are enough:\n", n);
	for (int i = 0; i < n; i++) {
		struct op op = op_make(seed, ops[i]);

		op_print(stdout, &op, ops[i]);
	}
	printf("%s\nagain: model --mode %s --seed %llu --length %d --only \"", difference, c->mode, (unsigned long long)seed,
	       c->length);
	for (int i = 0; i < n; i++)
		printf("%s%d", i ? " " : "", ops[i]);
	printf("\"\n");
	free(ops);
}

int check(const struct check *c)
{
	char difference[512], only[PATH_MAX];

	if (c->only) {
		FILE *f;

		snprintf(only, sizeof(only), "%s/only", c->work);
		f = fopen(only, "w");
		if (!f || fputs(c->only, f) < 0 || fclose(f) != 0)
			die("write", only);
		if (!same(c, c->seed, only, difference, sizeof(difference))) {
			printf("DIFFERENT:\n%s\n", difference);
			return 1;
		}
		printf("the same\n");
		return 0;
	}
	for (int i = 0; i < c->programs; i++) {
		if (same(c, c->seed + (uint64_t)i, NULL, difference, sizeof(difference)))
			continue;
		report(c, c->seed + (uint64_t)i, difference);
		return 1;
	}
	printf("mode %s: %d calls in %d programs, seeds %llu to %llu: the same\n", c->mode, c->programs * c->length,
	       c->programs, (unsigned long long)c->seed, (unsigned long long)c->seed + (uint64_t)c->programs - 1);
	return 0;
}
