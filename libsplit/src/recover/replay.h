/* SPDX-License-Identifier: Apache-2.0 */
/* Copying staged bytes into files. */
#ifndef SFS_REPLAY_H
#define SFS_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "control/root.h"
#include "control/store.h"

/*
 * A piece of a staging file, as it was when it was read. Sets of a few, the one used last first: a log whose records go from file to
 * file in turn finds the windows of all of them again.
 */
#define SFS_REPLAY_WINDOW_SETS	1024u
#define SFS_REPLAY_WINDOW_WAYS	4u
#define SFS_REPLAY_WINDOW_BYTES 4096u
struct sfs_replay_window {
	char *data; /* NULL: not used yet */
	uint32_t chunk;
	uint64_t at;
	size_t n;
};

/* The staging files that a lease names, opened when they are needed. */
struct sfs_chunks {
	const struct sfs_root *root;
	uint32_t n;
	struct sfs_chunk_ref {
		uint32_t id;
		int fd; /* -1 not open, -2 missing */
		uint64_t size;
		uint64_t named;	   /* no record that counts names anything from here on */
	} chunk[SFS_LEASE_CHUNKS]; /* sorted by id */
	struct sfs_chunk_ref *last;
	/* SFS_REPLAY_WINDOW_SETS; NULL before the first: most logs name no bytes. */
	struct sfs_replay_window (*window)[SFS_REPLAY_WINDOW_WAYS];
};

void sfs_chunks_init(struct sfs_chunks *c, const struct sfs_root *root, const struct sfs_lease *lease);
/* An open staging file, or NULL when the lease does not name it or it is missing (*err 0) or can't be opened (*err). */
struct sfs_chunk_ref *sfs_chunks_get(struct sfs_chunks *c, uint32_t id, int *err);
void sfs_chunks_close(struct sfs_chunks *c);

enum sfs_data { SFS_DATA_WHOLE, SFS_DATA_MOVED, SFS_DATA_TORN };
/*
 * Is the staged range what the checksum says? SFS_DATA_MOVED: it is not, and a part of it is a hole: it was relinked already, which
 * nobody does before the record is valid.
 */
int sfs_replay_check(struct sfs_chunks *c, const struct sfs_chunk_ref *ref, uint64_t off, uint32_t len, uint32_t crc,
		     enum sfs_data *state);

/* Copy what is data in [from, from + len) of the staging file to the same place relative to `to` in target. Adds to *bytes. */
int sfs_replay_copy(const struct sfs_chunk_ref *c, uint64_t from, int target, uint64_t to, uint64_t len, void *buf,
		    uint64_t *bytes);
#define SFS_REPLAY_BUFFER (1u << 20)

/* What write(2) by the client would have done to set-user-id bits. */
int sfs_replay_strip(int target);

#endif
