/* SPDX-License-Identifier: Apache-2.0 */
/* Others go on with the files while a recovery is under way: one renames a file that has been found already, one takes a lease on it. */
#include <signal.h>

#include "world.h"

static struct world w;
static struct world_file f, g;
static bool done;

static void rename_it(void)
{
	CHECK_EQ(renameat(w.root.fd, "g", w.root.fd, "d/h"), 0);
}

/* Nobody has it open for writing at this moment. */
static void lease_it(void)
{
	CHECK_EQ(fcntl(g.fd, F_SETLEASE, F_RDLCK), 0);
}

/* Of the first file something is written, of the second one nothing yet. */
static void progress(void *ctx, const struct sfs_recovery *sum)
{
	void (*const *meanwhile)(void) = ctx;

	CHECK(sum->bytes > 0);
	if (!done)
		(*meanwhile)();
	done = true;
}

/* The recovery's result. */
static int recover(void (*meanwhile)(void))
{
	const struct sfs_recover_how how = {.durable = true, .progress = progress, .progress_ctx = &meanwhile};
	struct sfs_recovery sum = {0};
	struct sfs_why why = {0};
	uint32_t living;

	return sfs_recover_all(&w.root, &how, &sum, &living, &why);
}

static void begin(void)
{
	struct world_log l;

	world_new(&w);
	done = false;
	CHECK_EQ(mkdirat(w.root.fd, "d", 0755), 0);
	f = world_file(&w, "f", 'o', 100);
	g = world_file(&w, "g", 'o', 100);
	world_log(&w, &l, 1, 64);
	world_allow(&l, &f);
	world_allow(&l, &g);
	world_write(&w, &l, &g, 100, 500, 'g', 0);
	/* Two ranges: the newer one is written when the older one comes. */
	world_write(&w, &l, &f, 100, 500, 'f', 1);
	world_write(&w, &l, &f, 9000, 500, 'f', 4);
	world_log_close(&l);
	close(g.fd);
	g.fd = openat(w.root.fd, "g", O_RDONLY | O_CLOEXEC);
}

static void end(void)
{
	world_expect(&f, 9500, 100, 600, 'f');
	world_expect(&g, 600, 100, 600, 'g');
	close(f.fd);
	close(g.fd);
	world_end(&w);
}

int main(void)
{
	signal(SIGIO, SIG_IGN);
	begin();
	CHECK(recover(lease_it) < 0);
	CHECK(done);
	CHECK_EQ(fcntl(g.fd, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(recover(lease_it), 0);
	end();

	begin();
	CHECK_EQ(recover(rename_it), 0);
	CHECK(done);
	end();
	return 0;
}
