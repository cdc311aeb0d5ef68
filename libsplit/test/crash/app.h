/* SPDX-License-Identifier: Apache-2.0 */
/* The program that is run: one call of the library each, noted in the history with what it makes of the tree (app.c). */
#ifndef CRASH_APP_H
#define CRASH_APP_H

#include "crash/workload.h"

#define SLOTS 8
#define A     0
#define B     1
#define KEPT  4
#define OTHER 2 /* A, as the second process has it open */

struct app {
	struct run *r;
	struct model *m; /* the state that the next call makes */
	int n;		 /* calls so far */
	struct {
		int fd; /* -1 */
		int file;
		char path[24]; /* empty: it has no name any more */
	} slot[SLOTS];
	/* What the program looks at: snapshots, and buffers that it has patched. It is the same after each call. */
	struct kept {
		const uint8_t *p; /* NULL: nothing */
		uint8_t *was;
		size_t n;
		bool buffer;
	} kept[KEPT];
	int pool;    /* 0: none yet */
	bool died;   /* the first process is no more: the second one goes on alone */
	bool others; /* the second process has had A open: until this one asks for it again the kernel may write */
};

/* What the calls are made of: begin, the library, end. */
struct model_op *app_begin(struct app *a, const char *what);
/* The same for one that writes n bytes, which are noted in what it makes of the tree. */
void app_begin_write(struct app *a, const char *name, int slot, uint64_t off, const void *p, uint64_t n);
void app_end(struct app *a);
long app_must(long r, const char *what); /* it does not fail */
const char *app_full(const char *path);	 /* in the volume; of the last two calls */

int app_open(struct app *a, const char *path, bool create);
/* Of a file that a program without the library makes just before. */
int app_open_foreign(struct app *a, const char *path);
/* In slot OTHER. */
void app_open_other(struct app *a, const char *path);
void app_close(struct app *a, int slot);
/* Size and bytes are what the calls so far have made of the file: by stat, and by read, of whole and of its end. */
void app_look(struct app *a, int slot);
/* The process is no more, between two calls. */
void app_die(struct app *a);
void app_write(struct app *a, int slot, uint64_t off, const void *p, uint64_t n);
/* At the end of the file, by the file offset: the short way of small appends. */
void app_append(struct app *a, int slot, const void *p, uint64_t n);
void app_writev(struct app *a, int slot, uint64_t off, const uint8_t *p, const uint32_t n[3], int flags);
/* Ranges, up to one without bytes, in one step. */
struct range {
	int slot;
	uint64_t off, n;
};
void app_swap(struct app *a, struct range x, struct range y);
void app_write_atomic(struct app *a, const struct range *ranges, const uint8_t *p);
/* A buffer of the bytes becomes the file's; it is given back at once, or kept. */
void app_patch(struct app *a, int slot, uint64_t off, const void *p, uint64_t n, bool keep);
/* A snapshot of all of it, where there is one without a copy. */
void app_peek(struct app *a, int slot);
/* Whatever was kept first is given back. */
void app_let_go(struct app *a);
bool app_keeps(const struct app *a);
void app_truncate(struct app *a, int slot, uint64_t size);
void app_fallocate(struct app *a, int slot, int mode, uint64_t off, uint64_t n);
void app_fsync(struct app *a, int slot, bool data_only);
void app_rename(struct app *a, const char *from, const char *to);
void app_unlink(struct app *a, const char *path);
void app_link(struct app *a, const char *from, const char *to);
/* A directory or a symbolic link: made, or removed. */
void app_other(struct app *a, const char *path, enum kern_type type, bool make);
void app_chmod(struct app *a, int slot, mode_t mode);
void app_fsync_dir(struct app *a);
/* The service thread's turns, on a processor of its own. `busy`: another thread is just emptying the log. */
void app_company(struct app *a, int s);
bool app_has_company(const struct app *a, int s);
void app_service(struct app *a, int turns, bool busy);
/* Records of files that are not looked at take all slots of the log that there are. */
void app_fill_log(struct app *a);

/* Other files have taken, and left, what there was of the staging files: what is staged next is in another one. */
void app_fill_staging(struct app *a);
/* The volume is idle: the agent gets staging files back. */
void app_idle(struct app *a);

/* The calls that follow are made by this process. */
void app_process(int which);

/* operations.c: one operation; false: it makes no sense here, and nothing was done. */
bool operate(struct app *a, char letter);

#endif
