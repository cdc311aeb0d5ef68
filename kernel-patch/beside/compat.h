/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the patches of a line use and an older kernel that they apply to does
 * not have.  Included before everything else; not for upstream.
 */
#ifndef SPLITFS_COMPAT_H
#define SPLITFS_COMPAT_H

#include <linux/version.h>

/* 6.9 made one hook of what IMA was asked by name before (6.8). */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 9, 0)
#include <linux/ima.h>
#define security_file_post_open(file, mask)	ima_file_check(file, mask)
#endif

/* 5.16 tells DAX by a flag; before, whoever asks this of a DAX file means it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
#include <linux/iomap.h>
#ifndef IOMAP_DAX
#define IOMAP_DAX	0
#endif
#endif

/*
 * What security modules and watchers say to a read or write: 6.0 lets modules
 * ask.  Before, reading or writing nothing asks the same, and does no more.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 0, 0)
#include <linux/fs.h>
static inline int splitfs_verify_area(int rw, struct file *file,
				      const loff_t *ppos, size_t count)
{
	loff_t pos = *ppos;

	if ((ssize_t)count < 0 || pos < 0 || (loff_t)(pos + count) < 0)
		return -EINVAL;
	return rw == READ ? kernel_read(file, NULL, 0, &pos) :
			    kernel_write(file, NULL, 0, &pos);
}
#define rw_verify_area splitfs_verify_area
#endif

/*
 * beside/rename looks into ext4.h: 5.15 has the two calls that the one is made
 * of, unless its stable releases or a distribution have brought it back.
 */
#ifdef SPLITFS_NO_FREE_EXT_PATH
#include <linux/slab.h>
#define ext4_free_ext_path(path) do {		\
	struct ext4_ext_path *freed_ = (path);	\
						\
	ext4_ext_drop_refs(freed_);		\
	kfree(freed_);				\
} while (0)
#endif

/*
 * Until 6.11 the path was passed by reference, and the caller's to free when
 * it failed.  beside/rename lets relink.c call this where it finds that.
 */
#define splitfs_insert_extent(handle, inode, path, extent, flags) ({	\
	struct ext4_ext_path *path_ = (path);				\
	int err_ = ext4_ext_insert_extent(handle, inode, &path_,	\
					  extent, flags);		\
									\
	if (err_) {							\
		ext4_free_ext_path(path_);				\
		path_ = ERR_PTR(err_);					\
	}								\
	path_;								\
})

#endif
