/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the memory behind a volume is, and whether what was stored there outlives a power failure: from what the kernel shows of regions,
 * NVDIMMs and CXL devices, and from what the administrator says. What nobody states is not taken for granted.
 */
#ifndef SFS_MEMORY_H
#define SFS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/root.h"
#include "control/why.h"

/* From the least on: a volume on several is what the least of them is. */
enum sfs_memory {
	SFS_MEMORY_EMULATED, /* no persistent memory: page cache above a disk */
	SFS_MEMORY_VOLATILE, /* main memory or CXL memory that shows itself as persistent, or an NVDIMM that is not armed */
	SFS_MEMORY_VIRTIO,   /* virtio-pmem: the host writes it at fsync and not before */
	SFS_MEMORY_UNSTATED, /* persistent, and neither platform nor administrator says from where on stores are safe */
	SFS_MEMORY_GPF,	     /* CXL: device and port take part in the global persistent flush */
	SFS_MEMORY_ADR,	     /* what has reached the memory controller is written when the power fails */
	SFS_MEMORY_EADR,     /* what is in a cache, too */
	SFS_MEMORIES
};

/* What the administrator says of this machine (SPLITFS_PLATFORM). It never makes volatile memory durable. */
enum sfs_platform { SFS_PLATFORM_AUTO, SFS_PLATFORM_ADR, SFS_PLATFORM_EADR };

struct sfs_machine {
	const char *root; /* "" or a directory in which sys/ and proc/cmdline are */
	enum sfs_platform platform;
};

struct sfs_memory_range {
	char name[32]; /* "region0", "dax1.0" */
	char provider[32];
	uint64_t bytes;
	enum sfs_memory memory;
	char why[128]; /* what it was told by */
};

/* This machine, as SPLITFS_PLATFORM says it is; -EINVAL with a sentence when that is no word of ours. */
int sfs_machine_here(struct sfs_machine *m, struct sfs_why *why);
int sfs_platform_parse(const char *word, enum sfs_platform *platform);

/* "emulated", "volatile", "virtio", "unstated", "gpf", "adr", "eadr". */
const char *sfs_memory_word(enum sfs_memory memory);
/* Is what was stored, and flushed where that is needed, there after a power failure? */
bool sfs_memory_durable(enum sfs_memory memory);

/* The memory under a block device. SFS_MEMORY_EMULATED where it is none. */
enum sfs_memory sfs_memory_of_device(const struct sfs_machine *m, dev_t dev);

/* The memory of an open volume. */
enum sfs_memory sfs_memory_of_root(const struct sfs_machine *m, const struct sfs_root *root);

/* All regions, and volatile memory behind /dev/dax. The caller frees *ranges. 0 or -ENOMEM. */
int sfs_memory_list(const struct sfs_machine *m, struct sfs_memory_range **ranges, size_t *n);

#endif
