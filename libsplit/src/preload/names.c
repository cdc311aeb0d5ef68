/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, attributes, and what stat says of them. The kernel does all of it. A file whose name or times change is true
 * before, so that whoever finds it under its new name finds all of it and relinking does not set the times again; where
 * the mode asks for that the change is durable after.
 */
#include "preload.h"

#include <stdio.h>

#include "base/result.h"
#include "meta/across.h"

/* Of what may fail while a file is made true by its name, these are the call's own errors. */
static int reported(int err)
{
	return err == -EIO || sfs_no_space(err) ? err : 0;
}

int pl_path_true(int fd, const char *path, int at_flags)
{
	return path ? reported(sfs_make_path_true(fd, path, at_flags)) : pl_true(fd);
}

static long target_true(const struct request *q)
{
	return pl_path_true(pl_fd(q), pl_path(q), pl_at_flags(q));
}

static long target_durable(const struct request *q)
{
	return sfs_attr_durable(pl_fd(q), pl_path(q), pl_at_flags(q));
}

/* The call has returned r: what `durable` says if it has worked. */
#define DURABLE(q, r, durable)                                                                                         \
	do {                                                                                                           \
		long err_ = pl_failed(q, r) ? 0 : (durable);                                                           \
                                                                                                                       \
		return err_ < 0 ? err_ : (r);                                                                          \
	} while (0)

/* The entry of a directory: mkdir, symlink, ... */
long do_entry(const struct request *q)
{
	const long r = pl_make(q);

	DURABLE(q, r, sfs_name_durable(pl_fd(q), pl_path(q)));
}

long do_attribute(const struct request *q)
{
	const long r = pl_make(q);

	DURABLE(q, r, target_durable(q));
}

/*
 * Set-ID bits or capabilities are given to what the file holds now: what is staged goes first, as relinking it later is
 * a write, which may take them away, and the next write is to end them.
 */
static long give_privileges(const struct request *q)
{
	long r = target_true(q);

	if (r < 0)
		return r;
	r = pl_make(q);
	if (r >= 0)
		sfs_privileges_given(pl_fd(q), pl_path(q), pl_at_flags(q));
	DURABLE(q, r, target_durable(q));
}

long do_mode(const struct request *q)
{
	return pl_next(q) & (S_ISUID | S_ISGID) ? give_privileges(q) : do_attribute(q);
}

long do_setxattr(const struct request *q)
{
	static const char capability[] = "security.capability";
	const char *name = (const char *)pl_next(q);
	size_t i = 0;

	while (i < sizeof(capability) && sys_readable(name + i) && name[i] == capability[i])
		i++;
	return i == sizeof(capability) ? give_privileges(q) : do_attribute(q);
}

/* The place of the second path, and of its directory. */
static const char *to_path(const struct request *q)
{
	return (const char *)q->a[pl_rows[q->call].path2 - 1];
}
static int to_fd(const struct request *q)
{
	const unsigned char at = pl_rows[q->call].fd2;

	return at ? (int)q->a[at - 1] : AT_FDCWD;
}

long do_rename(const struct request *q)
{
	const bool exchange = q->call == PL_renameat2 && q->a[4] & RENAME_EXCHANGE;
	long r;

	if (sfs_across(pl_fd(q), pl_path(q), 0, to_fd(q), to_path(q)))
		return -EXDEV;
	r = target_true(q);
	if (r >= 0 && exchange)
		r = pl_path_true(to_fd(q), to_path(q), AT_SYMLINK_NOFOLLOW);
	if (r < 0)
		return r;
	r = pl_make(q);
	if (r >= 0)
		sfs_name_given(to_fd(q), to_path(q));
	if (r >= 0 && exchange)
		sfs_name_given(pl_fd(q), pl_path(q));
	DURABLE(q, r, sfs_names_durable(pl_fd(q), pl_path(q), to_fd(q), to_path(q)));
}

/* AT_EMPTY_PATH and /proc/self/fd/N name an open file, mostly one of O_TMPFILE that gets its first name here. */
long do_link(const struct request *q)
{
	const int flags = q->call == PL_linkat ? (int)q->a[4] : 0;
	const int look = flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
	long r;

	if (sfs_across(pl_fd(q), pl_path(q), flags, to_fd(q), to_path(q)))
		return -EXDEV;
	r = pl_path_true(pl_fd(q), pl_path(q), look | (flags & AT_EMPTY_PATH));
	if (r < 0)
		return r;
	r = pl_make(q);
	if (r >= 0)
		sfs_name_given(to_fd(q), to_path(q));
	DURABLE(q, r, sfs_name_durable(to_fd(q), to_path(q)));
}

long do_unlink(const struct request *q)
{
	struct sfs_unlink u = {0};
	long r = pl_path(q) ? reported(sfs_unlink_begin(pl_fd(q), pl_path(q), &u)) : 0, err;

	if (r < 0)
		return r;
	r = pl_make(q);
	err = pl_failed(q, r) ? 0 : sfs_name_durable(pl_fd(q), pl_path(q));
	sfs_unlink_end(&u, !pl_failed(q, r) && err == 0);
	return err < 0 ? err : r;
}

/* Without a path utimensat and futimesat mean the descriptor itself. */
long do_times(const struct request *q)
{
	long r = !pl_path(q) && sfs_first_true(pl_fd(q)) ? 0 : target_true(q);

	if (r < 0)
		return r;
	r = pl_make(q);
	if (!pl_path(q) && !sfs_only_opened(pl_fd(q)))
		pl_changed(pl_fd(q));
	DURABLE(q, r, target_durable(q));
}

/*
 * A descriptor that was inherited and that nobody has used yet: another process may have staged data of its file, and is asked now.
 */
static void look(const struct request *q)
{
	if ((!pl_path(q) || pl_at_flags(q) & AT_EMPTY_PATH) && !sfs_only_opened(pl_fd(q)))
		sfs_ours(pl_fd(q));
}

/* Size and times are corrected while bytes are staged. */
static bool corrected(const struct request *q, uint64_t seen)
{
	return q->call == PL_statx ? !sfs_fix_statx((struct statx *)q->a[4], seen)
				   : !sfs_fix_stat((struct stat *)pl_next(q), seen);
}

/* Files that come and go all the time do not keep a stat going on for ever: then it is of some moment of it. */
#define STAT_TRIES 8

long do_stat(const struct request *q)
{
	long r;

	if (unlikely(pl_hidden(q)))
		return -EBADF;
	look(q);
	for (int n = 0; n < STAT_TRIES; n++) {
		const uint64_t seen = sfs_stat_begin();

		r = pl_make(q);
		if (r != 0 || corrected(q, seen))
			break;
	}
	return r;
}
