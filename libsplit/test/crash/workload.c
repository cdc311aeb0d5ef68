/* SPDX-License-Identifier: Apache-2.0 */
/* A run: an empty volume with file A, a fresh process of the library, the workload's operations, all recorded. */
#include "crash/workload.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "crash/agent.h"
#include "crash/app.h"
#include "harness.h"

const char *mode_name(enum sfs_mode mode)
{
	return mode == SFS_POSIX ? "posix" : mode == SFS_SYNC ? "sync" : "strict";
}

const char *fs_name(enum kern_fs fs)
{
	static const char *const names[] = {"ext4-relink", "reflink", "exchange", "copy"};

	return names[fs];
}

/* Less than 32 KiB is copied by all of them but ext4-relink. */
bool fs_worth(enum kern_fs fs, const char *workload)
{
	return fs == KERN_EXT4_RELINK || strpbrk(workload, "LBMzYE@");
}

static long hook(long n, long a, long b, long c, long d, long e, long f)
{
	return kern_call(n, a, b, c, d, e, f, __builtin_return_address(0));
}

/* File A with 6000 bytes, committed, before anything is recorded. */
static void prepare(struct run *r)
{
	struct model *m;
	uint8_t buf[6000];
	uint64_t seed = 5;
	int fd;

	kern_format(r->fs, r->dax);
	agent_make_volume();
	test_fill(&seed, buf, sizeof(buf));
	fd = kern_open(AT_FDCWD, "/v/A", O_RDWR | O_CREAT, 0644);
	kern_pwrite(kern_fd_ino(fd), buf, sizeof(buf), 0);
	kern_forget_process();
	r->h.state = reallocarray(r->h.state, 1, sizeof(*r->h.state));
	m = r->h.state;
	CHECK(m);
	memset(m, 0, sizeof(*m));
	model_reset();
	model_write(m, model_create(m, "A", 0644), 0, buf, sizeof(buf));
}

bool run_workload(struct run *r)
{
	struct app a = {.r = r};
	const bool lengthy = strlen(r->workload) >= WORKLOAD_LENGTHY;
	bool sense = true;

	record_reset_memory();
	kern_on = true;
	sys_hook = hook;
	kern.pm = record_memory();
	prepare(r);
	r->base_blocks = kern.next_block;
	r->base = realloc(r->base, (size_t)r->base_blocks * KERN_BLOCK);
	CHECK(r->base);
	memcpy(r->base, kern.pm, (size_t)r->base_blocks * KERN_BLOCK);
	r->base_hash = hash_bytes(0, r->base, (size_t)r->base_blocks * KERN_BLOCK);

	agent_start(r->alone);
	process_first(r->mode);
	r->h.mode = r->mode;
	r->h.dax = r->dax;
	r->h.n = 0;
	r->prefix[0] = hash_bytes((uint64_t)r->mode << 8 | (uint64_t)r->fs << 4 | (uint64_t)r->alone << 1 | r->dax, "", 0);
	for (int i = 0; i < SLOTS; i++)
		a.slot[i].fd = -1;
	record_start(&r->t);
	r->first = 0;
	if (r->workload[0] == '@') {
		CHECK(trace_play(&a, r->workload + 1));
	} else {
		app_open(&a, "A", false);
		for (const char *s = r->workload; *s && sense; s++) {
			r->first = s == r->workload || lengthy ? 0 : (uint32_t)a.n;
			sense = operate(&a, *s) || lengthy;
		}
	}
	record_stop();
	agent_stop();
	for (int i = 0; i < KEPT; i++)
		free(a.kept[i].was);
	kern_forget_process();
	kern_on = false;
	return sense;
}
