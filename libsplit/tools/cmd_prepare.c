/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs prepare: create or check the control directory and fill the pool. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cli.h"

#define SPACE_MARGIN (8ull << 20)

static const char help[] = "Usage: splitfs prepare ROOT [--pool-bytes N] [--chunk-bytes N]\n"
			   "\n"
			   "Make the directory ROOT a volume, or check that it is one, and fill its pool of staging files. May "
			   "be repeated. A control\n"
			   "directory that is not ours, or one of a newer format, is refused and nothing is changed.\n"
			   "\n"
			   "  --pool-bytes N    staging space kept ready (default 256M; K, M, G and T may follow the number)\n"
			   "  --chunk-bytes N   size of one staging file, a multiple of 2M (default 16M)\n"
			   "\n"
			   "Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static int leased(const struct sfs_root *r, struct sfs_numbers *out, struct sfs_why *why)
{
	struct sfs_numbers logs, leases;
	int err = sfs_log_list(r, &logs, &leases, why);

	out->v = NULL;
	out->n = 0;
	if (err)
		return err;
	/* Enough to know their highest numbers: what is leased is not ours to touch. */
	for (uint32_t i = 0; i < leases.n && !err; i++) {
		struct sfs_leasefile l;
		uint32_t *bigger;

		if (sfs_lease_load(r, leases.v[i], &l, NULL))
			continue; /* recovery's business */
		bigger = l.head.nchunks ? reallocarray(out->v, out->n + l.head.nchunks, sizeof(*bigger)) : out->v;
		if (l.head.nchunks && !bigger) {
			err = sfs_fail(why, -ENOMEM, "out of memory");
		} else {
			out->v = bigger;
			memcpy(out->v + out->n, l.head.chunks, l.head.nchunks * sizeof(*bigger));
			out->n += l.head.nchunks;
		}
		sfs_lease_close(&l);
	}
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	return err;
}

static bool has(const struct sfs_numbers *l, uint32_t v)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->v[i] == v)
			return true;
	return false;
}

/* The space of a user who asked for a small directory is not taken for a pool: it then stays smaller. */
static bool room_for(const struct sfs_root *r, uint64_t bytes)
{
	struct statvfs sv;

	return fstatvfs(r->pool, &sv) == 0 && (uint64_t)sv.f_bavail * sv.f_frsize >= bytes + SPACE_MARGIN;
}

static int fill(const struct sfs_root *r, uint64_t pool_bytes, uint64_t chunk_bytes, struct sfs_why *why)
{
	const struct sfs_pool_plan plan = sfs_pool_plan(pool_bytes, chunk_bytes);
	struct sfs_numbers chunks, used;
	struct cli_progress progress;
	uint32_t next = 1, good = 0;
	int err = sfs_chunk_list(r, &chunks, true, why);

	if (err)
		return err;
	err = leased(r, &used, why);
	for (uint32_t i = 0; i < used.n; i++)
		if (used.v[i] >= next)
			next = used.v[i] + 1;
	for (uint32_t i = 0; i < chunks.n && !err; i++) {
		if (chunks.v[i] >= next)
			next = chunks.v[i] + 1;
		if (has(&used, chunks.v[i]) || sfs_chunk_whole(r, chunks.v[i], chunk_bytes))
			good++;
		else if (!plan.small || (!sfs_chunk_whole(r, chunks.v[i], SFS_SMALL_CHUNK) &&
					 !sfs_chunk_whole(r, chunks.v[i], SFS_TINY_CHUNK))) /* those are the agent's to make */
			err = sfs_chunk_remove(r, chunks.v[i]);
	}
	sfs_numbers_free(&chunks);
	sfs_numbers_free(&used);
	if (err)
		return sfs_fail(why, err, "remove a staging file of %s: %s", r->path, strerror(-err));
	cli_progress_init(&progress, "filling the pool");
	for (; good < plan.full && !err; good++) {
		if (!room_for(r, chunk_bytes))
			break;
		err = sfs_chunk_create(r, next++, chunk_bytes, why);
		cli_progress(&progress, "filling the pool: %llu of %llu MiB",
			     (unsigned long long)((good + 1) * chunk_bytes >> 20),
			     (unsigned long long)(plan.full * chunk_bytes >> 20));
	}
	cli_progress_end(&progress);
	return err;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"pool-bytes", required_argument, NULL, OPT_POOL},
						{"chunk-bytes", required_argument, NULL, OPT_CHUNK},
						{0}};
	uint64_t pool = SFS_DEFAULT_POOL_BYTES, chunk = SFS_DEFAULT_CHUNK_BYTES;
	struct sfs_holder holder;
	struct sfs_why why = {0};
	struct sfs_root r;
	int o, err;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 'h':
			return cli_help(&cmd_prepare);
		case OPT_POOL:
			if (!cli_bytes(optarg, &pool))
				return cli_usage(&cmd_prepare, "--pool-bytes %s is no number of bytes", optarg);
			break;
		case OPT_CHUNK:
			if (!cli_bytes(optarg, &chunk))
				return cli_usage(&cmd_prepare, "--chunk-bytes %s is no number of bytes", optarg);
			break;
		default:
			return cli_usage(&cmd_prepare, "unknown option or missing value: %s", argv[optind - 1]);
		}
	}
	if (argc - optind != 1)
		return cli_usage(&cmd_prepare, "prepare takes one directory");
	if (!cli_check_chunk(&cmd_prepare, chunk))
		return EXIT_USAGE;
	sfs_file_size_lift();
	err = sfs_root_open(&r, argv[optind], true, &why);
	if (err)
		return cli_fail("%s", why.text);
	/* A volume that is being served is prepared; its pool is the agent's. */
	if (sfs_root_holder(&r, &holder) && strcmp(holder.what, "agent") == 0) {
		sfs_root_close(&r);
		return 0;
	}
	err = sfs_root_lock(&r, "prepare", &why);
	if (!err)
		err = fill(&r, pool, chunk, &why);
	sfs_root_close(&r);
	return err ? cli_fail("%s", why.text) : 0;
}

const struct command cmd_prepare = {"prepare", "make a directory a volume and fill its pool", help, run};
