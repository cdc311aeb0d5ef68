/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery, as it is, on the state that is in the explorer's kernel. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "crash/agent.h"
#include "crash/explore.h"
#include "harness.h"
#include "recover/recover.h"

static struct sfs_why why;

const char *recover_now(void)
{
	const struct sfs_recover_how how = {.durable = kern.dax};
	struct sfs_recovery sum = {0};
	struct sfs_root root;
	uint32_t living;

	agent_open_root(&root);
	if (sfs_recover_all(&root, &how, &sum, &living, &why))
		return why.text;
	return NULL;
}

/* Nothing of the dead client is left over. */
static const char *leftovers(void)
{
	unsigned logs = 0;
	const int log = kern_lookup(-100, "/v/" SFS_CONTROL_DIR "/log", false);

	for (unsigned i = 0; i < KERN_ENTRIES; i++)
		logs += kern.m.entry[i].dir == log && log > 0;
	return logs ? "a log or a lease is left after recovery" : NULL;
}

/*
 * Between the death of a process and its recovery another program makes a file. Its inode may be one that the log names, whose
 * file has gone with the process.
 */
#define STRANGER "/v/stranger"
static const char strange[200] = "made by another program";

static void stranger_comes(void)
{
	const int fd = kern_open(AT_FDCWD, STRANGER, O_RDWR | O_CREAT, 0644);

	CHECK_EQ(kern_pwrite(kern_fd_ino(fd), strange, sizeof(strange), 0), sizeof(strange));
	kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
}

static const char *stranger_goes(void)
{
	const int ino = kern_lookup(AT_FDCWD, STRANGER, false);
	char found[sizeof(strange)];
	bool same;

	if (ino < 0)
		return "a file that another program has made is gone";
	same = kern.m.inode[ino].size == sizeof(found) && kern_pread((uint32_t)ino, found, sizeof(found), 0) == sizeof(found) &&
	       memcmp(found, strange, sizeof(found)) == 0;
	kern_unlink(AT_FDCWD, STRANGER, 0);
	return same ? NULL : "a file that another program has made was changed";
}

const char *recover_and_check(const struct run *r, enum crash_kind kind, uint32_t done, bool in_flight)
{
	const char *bad;
	struct kern_meta once;

	if (kind == CRASH_KILL)
		stranger_comes();
	bad = recover_now();
	if (!bad && kind == CRASH_KILL)
		bad = stranger_goes();
	if (!bad)
		bad = kern_fsck();
	if (!bad)
		bad = leftovers();
	if (!bad)
		bad = agent_pool_sound();
	if (!bad)
		bad = model_check(&r->h, kind, done, in_flight);
	if (!bad) {
		once = kern.m;
		bad = recover_now();
		for (unsigned i = 0; !bad && i < KERN_ENTRIES; i++)
			if (once.entry[i].dir != kern.m.entry[i].dir || once.entry[i].ino != kern.m.entry[i].ino)
				bad = "a second recovery changes names";
		if (!bad)
			bad = model_check(&r->h, kind, done, in_flight);
	}
	return bad;
}

/* Content and size of every file that is not the volume's own. */
static uint64_t content(bool scribble)
{
	uint64_t h = 1;

	for (unsigned i = 0; i < KERN_ENTRIES; i++) {
		const struct kern_entry *e = &kern.m.entry[i];
		const struct kern_inode *in = &kern.m.inode[e->ino];
		static uint8_t bytes[KERN_FILE_BLOCKS * KERN_BLOCK];
		ssize_t n;

		if (!e->dir || in->type != KERN_FILE || kern_below_control(e->dir))
			continue;
		for (uint64_t at = 0; scribble && at < in->size; at += KERN_BLOCK)
			kern_pwrite(e->ino, "later", in->size - at < 5 ? in->size - at : 5, (off_t)at);
		n = kern_pread(e->ino, bytes, sizeof(bytes), 0);
		h = hash_bytes(h ^ e->ino, bytes, n > 0 ? (size_t)n : 0);
	}
	return h;
}

const char *recover_settled(void)
{
	const uint64_t before = content(true);
	const char *bad = recover_now();

	if (bad)
		return bad;
	return content(false) == before ? NULL : "a recovery that had finished is done again over what was written since";
}
