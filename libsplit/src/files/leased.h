/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of fcntl(2), F_SETLEASE. The kernel gives one only while nobody else has the file open, and breaks it at an
 * open that conflicts. A descriptor of ours would be somebody else's. So while the program has a lease the kernel serves
 * the file: we have no descriptor of it, no mapping, and no grant to stage.
 *
 *   state of an inode  what is true                                     goes on as
 *   not leased         the program has no lease on the file             leased: the program is about to ask for one, or has
 *                                                                       got a descriptor with one from elsewhere
 *   leased             nothing is staged; sfs_by_kernel()               not leased: no descriptor of the program has one any
 *                                                                       more, and nobody is asking for one
 * (enum sfs_server, files/life.h: with what else may leave the file to the kernel)
 *
 * Nobody tells us when a lease ends: it goes with the last descriptor of its description, which may be another process's,
 * and the kernel takes it away from who does not answer. So the kernel is asked before each call for which it matters.
 */
#ifndef SFS_LEASED_H
#define SFS_LEASED_H

#include "files/inode.h"

/* Does the kernel say that the description behind fd has a lease? One that is being broken may be there still. */
bool sfs_has_lease(int fd);
/*
 * inode.lock held, nothing staged, no snapshot held: it is leased, and nothing of ours is in the way of that. It stays so
 * until sfs_lease_asked(), after the kernel's answer.
 */
void sfs_lease_ask(struct sfs_inode *in);
void sfs_lease_asked(struct sfs_inode *in);
/* inode.lock held: is the inode still leased? fd: the program's descriptor that most likely has the lease. */
void sfs_lease_look(struct sfs_inode *in, int fd);
/*
 * inode.lock held, nothing staged and no grant to do so: our descriptor is open for writing for no longer than one of
 * the program's is, or it would keep another process from a read lease.
 */
void sfs_inode_narrow(struct sfs_inode *in);

#endif
