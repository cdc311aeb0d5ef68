/* SPDX-License-Identifier: Apache-2.0 */
#include "crash/app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "io/io.h"
#include "crash/agent.h"
#include "harness.h"

const char *app_full(const char *path)
{
	static char buf[2][40];
	static int i;

	i ^= 1;
	snprintf(buf[i], sizeof(buf[i]), "/v/%s", path);
	return buf[i];
}

/* ---- one call: begin, the library, end */

struct model_op *app_begin(struct app *a, const char *what)
{
	struct history *h = &a->r->h;
	struct model_op *op = &h->op[a->n];

	CHECK(a->n < (int)HISTORY_OPS);
	h->state = reallocarray(h->state, (size_t)a->n + 2, sizeof(*h->state));
	CHECK(h->state);
	h->state[a->n + 1] = h->state[a->n];
	a->m = &h->state[a->n + 1];
	*op = (struct model_op){.what = what, .file = -1};
	record_op(EV_BEGIN, (uint32_t)a->n);
	return op;
}

/* What the program looks at stays what it is. */
static void look(const struct app *a)
{
	for (int i = 0; i < KEPT; i++)
		if (a->kept[i].p && memcmp(a->kept[i].p, a->kept[i].was, a->kept[i].n) != 0)
			FAIL("%s: after %s a %s has changed", a->r->workload, a->r->h.op[a->n].what,
			     a->kept[i].buffer ? "buffer" : "snapshot");
}

void app_end(struct app *a)
{
	const struct model_op *op = &a->r->h.op[a->n];
	const uint64_t key[4] = {(uint64_t)op->file, op->off, op->len, hash_bytes(3, op->what, strlen(op->what))};

	record_op(EV_END, (uint32_t)a->n);
	look(a);
	a->n++;
	a->r->h.n = (uint32_t)a->n;
	a->r->prefix[a->n] = hash_bytes(a->r->prefix[a->n - 1], key, sizeof(key));
}

long app_must(long r, const char *what)
{
	if (r < 0)
		FAIL("%s: %s", what, strerror((int)-r));
	return r;
}

static int free_slot(const struct app *a)
{
	int s = 0;

	while (s < SLOTS && (a->slot[s].fd >= 0 || s == OTHER))
		s++;
	CHECK(s < SLOTS);
	return s;
}

/* foreign: a program without the library makes the file just before. */
static int open_in(struct app *a, int s, const char *path, bool create, bool foreign)
{
	const struct model_name *name = model_find(&a->r->h.state[a->n], path);
	const int file = name ? name->file : -1;
	struct model_op *op;

	CHECK(file >= 0 || create);
	op = app_begin(a, file >= 0 ? "open" : "create");
	op->names = file < 0;
	op->file = file >= 0 ? file : model_create(a->m, path, 0644);
	a->slot[s].file = op->file;
	snprintf(a->slot[s].path, sizeof(a->slot[s].path), "%s", path);
	if (foreign) {
		const int fd = kern_open(AT_FDCWD, app_full(path), O_RDWR | O_CREAT, 0644);

		kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
	}
	a->slot[s].fd = sfs_openat(AT_FDCWD, app_full(path), O_RDWR | (create ? O_CREAT : 0), 0644);
	app_must(a->slot[s].fd, "open");
	CHECK(sfs_ours(a->slot[s].fd));
	/* As after many calls: the short way of small appends is for locks that are the thread's own. */
	sfs_bias_grant(&sfs_fds[a->slot[s].fd]->lock.bias);
	sfs_bias_grant(&sfs_fds[a->slot[s].fd]->inode->lock.bias);
	app_end(a);
	return s;
}

int app_open(struct app *a, const char *path, bool create)
{
	return open_in(a, free_slot(a), path, create, false);
}

int app_open_foreign(struct app *a, const char *path)
{
	return open_in(a, free_slot(a), path, true, true);
}

void app_open_other(struct app *a, const char *path)
{
	open_in(a, OTHER, path, false, false);
	a->others = true;
}

void app_close(struct app *a, int s)
{
	app_begin(a, "close")->file = a->slot[s].file;
	app_must(sfs_close(a->slot[s].fd), "close");
	a->slot[s].fd = -1;
	app_end(a);
}

void app_look(struct app *a, int s)
{
	static uint8_t found[KERN_FILE_BLOCKS * KERN_BLOCK];
	const struct model_file *f;
	struct stat st;
	uint64_t seen;

	app_begin(a, "look");
	f = &a->m->file[a->slot[s].file];
	do {
		seen = sfs_stat_begin();
		app_must(kern_call(SYS_fstat, a->slot[s].fd, (long)&st, 0, 0, 0, 0, NULL), "fstat");
	} while (sfs_fix_stat(&st, seen));
	if ((uint64_t)st.st_size != f->size)
		FAIL("%s: stat says %llu bytes after %u calls, expected %llu", a->r->workload, (unsigned long long)st.st_size,
		     (unsigned)a->n, (unsigned long long)f->size);
	CHECK_EQ(app_must(sfs_read(a->slot[s].fd, found, sizeof(found), 0), "read"), f->size);
	for (uint64_t at = 0; at < f->size; at++) {
		const uint8_t *b = f->blk[at / KERN_BLOCK];

		if (found[at] != (b ? b[at % KERN_BLOCK] : 0))
			FAIL("%s: another process reads a wrong byte %llu after %u calls", a->r->workload,
			     (unsigned long long)at, (unsigned)a->n);
	}
	app_end(a);
}

void app_die(struct app *a)
{
	app_begin(a, "death")->dies = true;
	agent_process_died(process_now());
	a->died = true;
	for (int i = 0; i < KEPT; i++) {
		free(a->kept[i].was);
		a->kept[i] = (struct kept){0};
	}
	app_end(a);
}

/* A call that writes these bytes. */
void app_begin_write(struct app *a, const char *name, int s, uint64_t off, const void *p, uint64_t n)
{
	struct model_op *op = app_begin(a, name);

	op->file = a->slot[s].file;
	op->off = off;
	op->len = n;
	op->writes = true;
	op->shared = a->others;
	model_write(a->m, op->file, off, p, n);
}

void app_write(struct app *a, int s, uint64_t off, const void *p, uint64_t n)
{
	app_begin_write(a, "write", s, off, p, n);
	CHECK_EQ(app_must(sfs_write(a->slot[s].fd, p, n, (off_t)off), "write"), n);
	app_end(a);
}

void app_append(struct app *a, int s, const void *p, uint64_t n)
{
	struct model_op *op = app_begin(a, "append");

	op->file = a->slot[s].file;
	op->off = a->m->file[op->file].size;
	op->len = n;
	op->writes = true;
	op->shared = a->others;
	model_write(a->m, op->file, op->off, p, n);
	CHECK_EQ(app_must(sfs_lseek(a->slot[s].fd, 0, SEEK_END), "lseek"), op->off);
	CHECK_EQ(app_must(sfs_write(a->slot[s].fd, p, n, -1), "append"), n);
	app_end(a);
}

void app_writev(struct app *a, int s, uint64_t off, const uint8_t *p, const uint32_t n[3], int flags)
{
	const struct iovec iov[3] = {{(void *)p, n[0]}, {(void *)(p + n[0]), n[1]}, {(void *)(p + n[0] + n[1]), n[2]}};
	struct model_op *op = app_begin(a, flags ? "dsync writev" : "writev");

	op->file = a->slot[s].file;
	op->off = off;
	op->len = n[0] + n[1] + n[2];
	op->writes = true;
	op->shared = a->others;
	op->syncs = flags != 0;
	model_write(a->m, op->file, off, p, op->len);
	CHECK_EQ(app_must(sfs_writev(a->slot[s].fd, iov, 3, (off_t)off, flags), "writev"), op->len);
	app_end(a);
}

void app_write_atomic(struct app *a, const struct range *ranges, const uint8_t *p)
{
	struct model_op *op = app_begin(a, "atomic write");
	struct sfs_range r[4];
	int n = 0;

	op->file = a->slot[ranges[0].slot].file;
	op->writes = true;
	for (; ranges[n].n; n++) {
		r[n] = (struct sfs_range){a->slot[ranges[n].slot].fd, (off_t)ranges[n].off, p, ranges[n].n};
		model_write(a->m, a->slot[ranges[n].slot].file, ranges[n].off, p, ranges[n].n);
		p += ranges[n].n;
	}
	app_must(sfs_write_atomic(r, n), "atomic write");
	app_end(a);
}

void app_truncate(struct app *a, int s, uint64_t size)
{
	struct model_op *op = app_begin(a, "truncate");

	op->file = a->slot[s].file;
	op->off = size;
	op->cuts = true;
	op->zeroes = size < a->m->file[op->file].size;
	model_truncate(a->m, op->file, size);
	app_must(sfs_ftruncate(a->slot[s].fd, (off_t)size), "truncate");
	app_end(a);
}

void app_fallocate(struct app *a, int s, int mode, uint64_t off, uint64_t n)
{
	struct model_op *op = app_begin(a, mode ? "punch" : "fallocate");

	op->file = a->slot[s].file;
	op->off = off;
	op->len = n;
	op->cuts = true;
	op->parts = mode != 0;
	if (mode)
		model_punch(a->m, op->file, off, n);
	else if (off + n > a->m->file[op->file].size)
		model_truncate(a->m, op->file, off + n);
	app_must(sfs_fallocate(a->slot[s].fd, mode, (off_t)off, (off_t)n), "fallocate");
	app_end(a);
}

void app_fsync(struct app *a, int s, bool data_only)
{
	struct model_op *op = app_begin(a, data_only ? "fdatasync" : "fsync");

	op->file = a->slot[s].file;
	op->syncs = true;
	app_must(sfs_fsync(a->slot[s].fd, data_only), "fsync");
	app_end(a);
}

static int company;

static struct sfs_inode *inode_in(const struct app *a, int s)
{
	return sfs_fds[a->slot[s].fd]->inode;
}

void app_company(struct app *a, int s)
{
	app_begin(a, "another thread");
	/* It has taken the lock, so that is nobody's own from here on, and no write takes a short way. */
	inode_in(a, s)->lock.bias = (struct sfs_bias){.candidate = &company};
	app_end(a);
}

bool app_has_company(const struct app *a, int s)
{
	return inode_in(a, s)->lock.bias.candidate == &company;
}

void app_service(struct app *a, int turns, bool busy)
{
	struct sfs_volume *vol = &sfs.volumes[0];

	app_begin(a, "service thread");
	if (busy)
		sfs_mutex_lock(&vol->log.checkpoint);
	for (int i = 0; i < turns; i++)
		process_serve(process_now(), true);
	if (busy)
		sfs_mutex_unlock(&vol->log.checkpoint);
	app_end(a);
}

void app_fill_log(struct app *a)
{
	uint32_t slot;

	app_begin(a, "full log");
	while (sfs_log_reserve(&sfs.volumes[0].log, 1, true, &slot) == 0)
		;
	app_end(a);
}

void app_fill_staging(struct app *a)
{
	struct sfs_pool *pool = &sfs.volumes[0].pool;

	app_begin(a, "full staging files");
	for (uint32_t i = 0; i < pool->nchunks; i++)
		if (pool->chunks[i].pins > 0) /* else it would be empty again */
			pool->chunks[i].used = pool->chunks[i].blocks;
	app_end(a);
}

void app_idle(struct app *a)
{
	app_begin(a, "idle volume");
	sfs_pool_idle(&sfs.volumes[0].pool);
	app_end(a);
}

void app_process(int which)
{
	process_switch(which);
	record_cpu(which ? CPU_APP_2 : CPU_APP);
}
