/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns a file, asked of nobody: the agent's table, claims, and waiting for what the table says (format/owners.h says how they fit
 * together).
 */
#ifndef SFS_ASK_H
#define SFS_ASK_H

#include "lease/volume.h"
#include "format/owners.h"

/* The table and, with a log, the claims of this process. fd: the table's, closed. Nothing changes when it can't be mapped. */
void sfs_owners_map(struct sfs_volume *vol, int fd);

/*
 * struct sfs_grant's `looked`: the number in the table that the answer was given at, SFS_ASKED, the question's flags, and above the lowest bits of the
 * inode's number. Nothing is held while an answer is waited for, so it may come when the file has been closed by another thread, and what it is noted
 * in has become another file's.
 */
#define SFS_ASKED	    (1ull << 32)
#define SFS_ASKED_FLAGS	    33
#define SFS_ASKED_FLAGS_MAX 7u
#define SFS_ASKED_INO	    36
static inline uint64_t sfs_asked(uint64_t ino, unsigned flags, uint32_t at)
{
	return ino << SFS_ASKED_INO | (uint64_t)flags << SFS_ASKED_FLAGS | SFS_ASKED | at;
}

/* Was the answer to such a question that nobody has the file, and at this number? */
static inline bool sfs_asked_at(const struct sfs_grant *g, uint64_t ino, uint32_t number, unsigned flags)
{
	const uint64_t looked = __atomic_load_n(&g->looked, __ATOMIC_RELAXED);

	return (looked | (uint64_t)SFS_ASKED_FLAGS_MAX << SFS_ASKED_FLAGS) == sfs_asked(ino, SFS_ASKED_FLAGS_MAX, number) &&
	       (looked >> SFS_ASKED_FLAGS & flags) == flags;
}

/*
 * Is there a table? A process that has nothing of the volume open, or could not become a client, gets it without being one. While there is no
 * agent, or none that answers, it is asked for again: one may come, and its clients stage.
 */
bool sfs_owners_peek(struct sfs_volume *vol);
static inline bool sfs_owners_known(struct sfs_volume *vol)
{
	return load_acquire(&vol->owners) || (load_acquire(&vol->agent.state) != VOL_READY && sfs_owners_peek(vol));
}

/* Does nobody else stage bytes of the inode, so that the kernel's view is true? g: this process's of it, or NULL. One load. */
static inline bool sfs_owners_clean(const struct sfs_volume *vol, const struct sfs_grant *g, uint64_t ino)
{
	const uint64_t word = load_acquire(&vol->owners[sfs_owners_index(ino)]);

	return sfs_owners_stagers(word) == 0 || (g && sfs_asked_at(g, ino, sfs_owners_number(word), 0));
}

/* Does the table say in that word that programs without the library have such a file open? One load. */
static inline bool sfs_says_outside(const struct sfs_volume *vol, uint32_t word)
{
	const uint64_t *owners = load_acquire(&vol->owners);

	return owners && sfs_owners_outside(load_acquire(&owners[word]));
}

/*
 * May a program without the library have the inode open? What is staged is to be brought into the file for it. Programs that had it open
 * before this process asked for it are not seen, nor those to which an open descriptor was handed on. One load.
 */
static inline bool sfs_outside(const struct sfs_volume *vol, uint64_t ino)
{
	return sfs.fsync_shows || load_acquire(&vol->agent.state) != VOL_READY ||
	       __atomic_load_n(&vol->agent.event_fd, __ATOMIC_RELAXED) < 0 || /* the agent is away */
	       !(vol->agent.features & SFS_FEATURE_OUTSIDE) || sfs_says_outside(vol, sfs_owners_index(ino));
}

/*
 * Make the kernel's view true: whoever stages bytes of the inode relinks them, and who died with some is recovered. Waits without a lock, and no
 * signal is blocked; flags: SFS_LOOK_*. 0; -EINTR after a handler; -ETIMEDOUT; -ENOTCONN: no agent has answered for a while.
 */
int sfs_ask(struct sfs_volume *vol, struct sfs_grant *g, uint64_t ino, unsigned flags);
/* The same where the table says that it is needed. Without an agent the kernel's view has to do. */
int sfs_ask_first(struct sfs_volume *vol, struct sfs_grant *g, uint64_t ino);
/* Service thread: the answer; or the connection has ended, and with it the questions. */
void sfs_answered(struct sfs_volume *vol, const struct sfs_msg *m);
void sfs_asks_end(struct sfs_volume *vol);
/* In the child of a fork there are none: one that a handler of this thread has interrupted ends with -EINTR. */
void sfs_asks_forget(struct sfs_volume *vol);

/*
 * From sfs_claim() to sfs_unclaim() the kernel may change the file, which nobody stages nor is granted to another process. Waits as
 * sfs_ask() does; -EIO where it can't be had.
 */
struct sfs_claim_held {
	struct sfs_volume *vol;
	uint64_t *place; /* NULL: none is held */
	uint32_t forks;	 /* sfs.forks: in the child of a handler's fork it is the parent's still */
};
int sfs_claim(struct sfs_volume *vol, struct sfs_grant *g, uint64_t ino, struct sfs_claim_held *c);
void sfs_unclaim(struct sfs_claim_held *c);
/* The claim, for who looks at the table itself: a full fence later. */
void sfs_claim_only(struct sfs_volume *vol, uint64_t ino, struct sfs_claim_held *c);
/* Has a thread of this process a claim that names the inode? */
bool sfs_claim_named(const struct sfs_volume *vol, uint64_t ino);
/* The same, or one that names none. */
bool sfs_claimed_here(const struct sfs_volume *vol, uint64_t ino);

#endif
