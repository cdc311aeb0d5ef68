/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that change names and attributes. */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "crash/app.h"
#include "harness.h"

/* The preload layer's part of these: staged bytes first, then the kernel, then what the mode wants (src/preload/names.c). */
void app_rename(struct app *a, const char *from, const char *to)
{
	struct model_op *op = app_begin(a, "rename");
	struct model_name *x = model_find(a->m, from), *y = model_find(a->m, to);

	CHECK(x);
	op->file = x->file;
	op->names = true;
	if (y)
		y->type = KERN_FREE;
	snprintf(x->path, sizeof(x->path), "%s", to);
	app_must(sfs_make_path_true(AT_FDCWD, app_full(from), AT_SYMLINK_NOFOLLOW), "rename");
	app_must(kern_rename(AT_FDCWD, app_full(from), AT_FDCWD, app_full(to), 0), "rename");
	sfs_name_given(AT_FDCWD, app_full(to));
	app_must(sfs_names_durable(AT_FDCWD, app_full(from), AT_FDCWD, app_full(to)), "rename");
	app_end(a);
}

void app_unlink(struct app *a, const char *path)
{
	struct model_op *op = app_begin(a, "unlink");
	struct model_name *x = model_find(a->m, path);
	struct sfs_unlink u;

	CHECK(x);
	op->file = x->file;
	op->names = true;
	x->type = KERN_FREE;
	app_must(sfs_unlink_begin(AT_FDCWD, app_full(path), &u), "unlink");
	app_must(kern_unlink(AT_FDCWD, app_full(path), 0), "unlink");
	app_must(sfs_name_durable(AT_FDCWD, app_full(path)), "unlink");
	sfs_unlink_end(&u, true);
	app_end(a);
}

void app_link(struct app *a, const char *from, const char *to)
{
	struct model_op *op = app_begin(a, "link");
	struct model_name *x = model_find(a->m, from);

	CHECK(x);
	op->file = x->file;
	op->names = true;
	for (unsigned i = 0; i < MODEL_NAMES; i++) {
		if (a->m->name[i].type)
			continue;
		a->m->name[i] = *x;
		snprintf(a->m->name[i].path, sizeof(a->m->name[i].path), "%s", to);
		break;
	}
	app_must(sfs_make_path_true(AT_FDCWD, app_full(from), AT_SYMLINK_NOFOLLOW), "link");
	app_must(kern_link(AT_FDCWD, app_full(from), AT_FDCWD, app_full(to)), "link");
	sfs_name_given(AT_FDCWD, app_full(to));
	app_must(sfs_name_durable(AT_FDCWD, app_full(to)), "link");
	app_end(a);
}

void app_other(struct app *a, const char *path, enum kern_type type, bool make)
{
	struct model_op *op = app_begin(a, make ? "mkdir" : "rmdir");
	long r;

	op->names = true;
	if (make) {
		const int f = model_create(a->m, path, type == KERN_DIR ? 0755 : 0777);

		a->m->nfiles = f; /* it has no content */
		model_find(a->m, path)->type = (uint8_t)type;
		model_find(a->m, path)->file = -1;
		r = type == KERN_DIR ? kern_mkdir(AT_FDCWD, app_full(path), 0755) : kern_symlink("A", AT_FDCWD, app_full(path));
	} else {
		model_find(a->m, path)->type = KERN_FREE;
		r = kern_unlink(AT_FDCWD, app_full(path), type == KERN_DIR ? AT_REMOVEDIR : 0);
	}
	app_must(r, op->what);
	app_must(sfs_name_durable(AT_FDCWD, app_full(path)), op->what);
	app_end(a);
}

void app_chmod(struct app *a, int s, mode_t mode)
{
	struct model_op *op = app_begin(a, "fchmod");

	op->file = a->slot[s].file;
	op->names = true;
	for (unsigned i = 0; i < MODEL_NAMES; i++)
		if (a->m->name[i].type && a->m->name[i].file == op->file)
			a->m->name[i].mode = (uint16_t)mode;
	app_must(kern_chmod(kern_fd_ino(a->slot[s].fd), mode), "fchmod");
	app_must(sfs_fd_durable(a->slot[s].fd), "fchmod");
	app_end(a);
}

void app_fsync_dir(struct app *a)
{
	int fd = kern_open(AT_FDCWD, "/v", O_RDONLY | O_DIRECTORY, 0);

	app_begin(a, "fsync of the directory");
	kern_call(SYS_fsync, fd, 0, 0, 0, 0, 0, NULL);
	app_end(a);
	kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
}
