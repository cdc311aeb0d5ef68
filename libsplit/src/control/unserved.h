/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that open a file of a volume for writing: what is done with them, and what was done.
 * ROOT/.splitfs/unserved is written by the agent for `splitfs status`, which asks nobody.
 */
#ifndef SFS_UNSERVED_H
#define SFS_UNSERVED_H

#include "control/root.h"

enum sfs_unserved {
	UNSERVED_ALLOW,	  /* opened as it is */
	UNSERVED_DURABLE, /* opened, and the file becomes synchronous: each write is durable when it returns */
	UNSERVED_REFUSE,  /* EPERM */
};

/* False: it is none of the three names. */
bool sfs_unserved_parse(const char *name, enum sfs_unserved *u);
const char *sfs_unserved_name(enum sfs_unserved u);

/* Does the agent see opens of the whole volume? */
enum sfs_enforcement {
	ENFORCEMENT_OFF,    /* nobody asks for it */
	ENFORCEMENT_ON,	    /* yes */
	ENFORCEMENT_CANNOT, /* the kernel does not let it: the agent's log says why */
};
const char *sfs_enforcement_name(enum sfs_enforcement e);

#define SFS_UNSERVED_MAX  32u /* processes that are listed; all are counted */
#define SFS_UNSERVED_POD  64
#define SFS_UNSERVED_PATH 256

/* A process, and the last of its opens that was not simply allowed. */
struct sfs_unserved_one {
	int pid;
	enum sfs_unserved did;	    /* what was done */
	uint64_t opens;		    /* so many times */
	uint64_t when;		    /* seconds since 1970 */
	char pod[SFS_UNSERVED_POD]; /* UID; "-": none */
	char program[SFS_UNSERVED_PATH];
	char path[SFS_UNSERVED_PATH];
};

struct sfs_unserved_list {
	enum sfs_enforcement state;
	uint64_t refused, durable; /* opens since the agent started */
	uint32_t n;
	struct sfs_unserved_one v[SFS_UNSERVED_MAX]; /* the latest last */
};

int sfs_unserved_write(const struct sfs_root *r, const struct sfs_unserved_list *l);
/* An empty list where there is no file, or one that says nothing. */
void sfs_unserved_read(const struct sfs_root *r, struct sfs_unserved_list *l);

#endif
