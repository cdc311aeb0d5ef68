/* SPDX-License-Identifier: Apache-2.0 */
/* Names and attributes that survive a power loss: what sync and strict promise of metadata calls. */
#ifndef SFS_DURABLE_H
#define SFS_DURABLE_H

struct stat;
struct sfs_volume;

/*
 * The kernel has changed a name or an attribute: in sync and strict mode it is durable when these return 0; a negative errno value
 * is for the call to report. For what is no volume's they do nothing.
 */
int sfs_name_durable(int dirfd, const char *path);			       /* the entry of path: mkdir, link, unlink, ... */
int sfs_names_durable(int fromfd, const char *from, int tofd, const char *to); /* two entries: rename */
/* rename and link, in posix: the next fsync of the file at this name commits the name. After the call, as another thread's fsync may come before. */
void sfs_name_given(int dirfd, const char *path);
int sfs_attr_durable(int dirfd, const char *path, int at_flags); /* the file at path: chmod, setxattr, utimens, ... */
int sfs_fd_durable(int fd);					 /* the open file itself */

/* The directory that holds the last component of path; PATH_MAX + 2 bytes. */
void sfs_parent_of(char *parent, const char *path);

/* The application has just opened fd with these flags. st: the file before anything else happened to it. */
int sfs_open_durable(struct sfs_volume *vol, int fd, int flags, const struct stat *st);

#endif
