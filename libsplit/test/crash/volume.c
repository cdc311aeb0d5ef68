/* SPDX-License-Identifier: Apache-2.0 */
/* The volume as it is when a workload begins, and what its pool may hold after a recovery. */
#include "crash/agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/crc32c.h"
#include "control/store.h"
#include "crash/kern.h"
#include "format/layout.h"
#include "harness.h"

static const uint8_t uuid[16] = "crash explorer!";

void agent_path_or_die(int err, const char *what)
{
	if (err < 0)
		FAIL("make %s: %s", what, strerror(-err));
}

void agent_open_root(struct sfs_root *r)
{
	memset(r, 0, sizeof(*r));
	strcpy(r->path, "/v");
	memcpy(r->uuid, uuid, sizeof(uuid));
	r->fd = kern_open(AT_FDCWD, "/v", O_RDONLY | O_DIRECTORY, 0);
	r->ctl = kern_open(r->fd, SFS_CONTROL_DIR, O_RDONLY | O_DIRECTORY, 0);
	r->log = kern_open(r->ctl, "log", O_RDONLY | O_DIRECTORY, 0);
	r->pool = kern_open(r->ctl, "pool", O_RDONLY | O_DIRECTORY, 0);
	r->lock = -1;
	r->dev = KERN_DEV;
	r->dax = kern.dax;
	r->dedicated = true;
	CHECK(r->log >= 0 && r->pool >= 0);
}

/* The bytes that nobody has stored are those of an earlier use: nothing may rest on zeros in a staging file. */
static void use_before(const struct sfs_root *root, uint32_t id)
{
	static uint8_t past[AGENT_CHUNK_BYTES];
	const int fd = sfs_chunk_open(root, id);

	memset(past, AGENT_PAST, sizeof(past));
	CHECK(fd >= 0 && kern_pwrite(kern_fd_ino(fd), past, sizeof(past), 0) == sizeof(past));
	kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
}

const char *agent_pool_sound(void)
{
	uint8_t expected[KERN_BLOCK];
	char name[40];

	for (uint32_t id = AGENT_FIRST_CHUNK; id < agent_chunks_end(); id++) {
		const struct kern_inode *in;
		int ino;

		snprintf(name, sizeof(name), "/v/" SFS_CONTROL_DIR "/pool/%06u", id);
		ino = kern_lookup(AT_FDCWD, name, false);
		/* One with holes is removed. */
		if (ino < 0 || kern_seek_data((uint32_t)ino, 0, false) != AGENT_CHUNK_BYTES)
			continue;
		in = &kern.m.inode[ino];
		memset(expected, id < AGENT_FIRST_CHUNK + AGENT_CHUNKS ? AGENT_PAST : 0, sizeof(expected));
		for (unsigned k = 0; k < AGENT_CHUNK_BYTES / KERN_BLOCK; k++)
			if (memcmp(kern.pm + (size_t)in->blk[k] * KERN_BLOCK, expected, sizeof(expected)) != 0)
				return "a staging file with somebody's bytes may be given to another";
	}
	return NULL;
}

void agent_make_volume(void)
{
	static struct sfs_volume_header h;
	struct sfs_root root;
	struct sfs_why why;
	int fd;

	agent_path_or_die(kern_mkdir(AT_FDCWD, "/v/" SFS_CONTROL_DIR, 0700), "the control directory");
	agent_path_or_die(kern_mkdir(AT_FDCWD, "/v/" SFS_CONTROL_DIR "/log", 0700), "log");
	agent_path_or_die(kern_mkdir(AT_FDCWD, "/v/" SFS_CONTROL_DIR "/pool", 0700), "pool");
	h = (struct sfs_volume_header){.magic = SFS_VOLUME_MAGIC, .format = SFS_FORMAT};
	memcpy(h.uuid, uuid, sizeof(uuid));
	h.crc = crc32c(0, &h, sizeof(h));
	fd = kern_open(AT_FDCWD, "/v/" SFS_CONTROL_DIR "/volume", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && kern_pwrite(kern_fd_ino(fd), &h, sizeof(h), 0) == sizeof(h));
	kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
	agent_boot = 1;
	agent_open_root(&root);
	for (uint32_t i = 0; i < AGENT_CHUNKS; i++)
		if (sfs_chunk_create(&root, AGENT_FIRST_CHUNK + i, AGENT_CHUNK_BYTES, &why))
			FAIL("%s", why.text);
	for (uint32_t i = 0; i < AGENT_CHUNKS; i++)
		use_before(&root, AGENT_FIRST_CHUNK + i);
	fd = sfs_log_create(&root, 1, AGENT_SLOTS, 0, &why);
	if (fd < 0)
		FAIL("%s", why.text);
}
