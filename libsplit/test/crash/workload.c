/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations and the program that makes them, in the manner of ACE (CrashMonkey): a small tree with a file A that is there
 * and filled, and every sequence of a few operations.
 */
#include "crash/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/sys.h"
#include "core/core.h"
#include "core/state.h"
#include "crash/agent.h"
#include "harness.h"
#include "pm/pm.h"

#define SLOTS 8
#define A     0
#define B     1

struct app {
	struct run *r;
	struct model *m; /* the state that the next call makes */
	int n;		 /* calls so far */
	struct {
		int fd; /* -1 */
		int file;
		char path[24];
	} slot[SLOTS];
	bool pointless;
};

const char *mode_name(enum sfs_mode mode)
{
	return mode == SFS_POSIX ? "posix" : mode == SFS_SYNC ? "sync" : "strict";
}

const char *fs_name(enum kern_fs fs)
{
	return fs == KERN_EXT4 ? "copy" : fs == KERN_XFS_REFLINK ? "reflink" : "exchange";
}

static const char *full(const char *path)
{
	static char buf[2][40];
	static int i;

	i ^= 1;
	snprintf(buf[i], sizeof(buf[i]), "/v/%s", path);
	return buf[i];
}

/* ---- one call: begin, the library, end */

static struct model_op *begin(struct app *a, const char *what)
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

static void end(struct app *a)
{
	const struct model_op *op = &a->r->h.op[a->n];
	const uint64_t key[4] = {(uint64_t)op->file, op->off, op->len, hash_bytes(3, op->what, strlen(op->what))};

	record_op(EV_END, (uint32_t)a->n);
	a->n++;
	a->r->h.n = (uint32_t)a->n;
	a->r->prefix[a->n] = hash_bytes(a->r->prefix[a->n - 1], key, sizeof(key));
}

static long must(long r, const char *what)
{
	if (r < 0)
		FAIL("%s: %s", what, strerror((int)-r));
	return r;
}

/* foreign: a program without the library makes the file just before. */
static int open_any(struct app *a, const char *path, bool create, bool foreign)
{
	const struct model_name *name = model_find(&a->r->h.state[a->n], path);
	const int file = name ? name->file : -1;
	int s = 0;
	struct model_op *op;

	while (s < SLOTS && a->slot[s].fd >= 0)
		s++;
	CHECK(s < SLOTS && (file >= 0 || create));
	op = begin(a, file >= 0 ? "open" : "create");
	op->names = file < 0;
	op->file = file >= 0 ? file : model_create(a->m, path, 0644);
	a->slot[s].file = op->file;
	snprintf(a->slot[s].path, sizeof(a->slot[s].path), "%s", path);
	if (foreign) {
		const int fd = kern_open(AT_FDCWD, full(path), O_RDWR | O_CREAT, 0644);

		kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
	}
	a->slot[s].fd = sfs_openat(AT_FDCWD, full(path), O_RDWR | (create ? O_CREAT : 0), 0644);
	must(a->slot[s].fd, "open");
	CHECK(sfs_ours(a->slot[s].fd));
	/* As after many calls: the short way of small appends is for locks that are the thread's own. */
	sfs_bias_grant(&sfs_fds[a->slot[s].fd]->lock.bias);
	sfs_bias_grant(&sfs_fds[a->slot[s].fd]->inode->lock.bias);
	end(a);
	return s;
}

int app_open(struct app *a, const char *path, bool create)
{
	return open_any(a, path, create, false);
}

static int app_open_foreign(struct app *a, const char *path)
{
	return open_any(a, path, true, true);
}

void app_close(struct app *a, int s)
{
	begin(a, "close")->file = a->slot[s].file;
	must(sfs_close(a->slot[s].fd), "close");
	a->slot[s].fd = -1;
	end(a);
}

void app_write(struct app *a, int s, uint64_t off, const void *p, uint64_t n)
{
	struct model_op *op = begin(a, "write");

	op->file = a->slot[s].file;
	op->off = off;
	op->len = n;
	op->writes = true;
	model_write(a->m, op->file, off, p, n);
	CHECK_EQ(must(sfs_write(a->slot[s].fd, p, n, (off_t)off), "write"), n);
	end(a);
}

/* At the end of the file, by the file offset: the short way of small appends. */
static void app_append(struct app *a, int s, const void *p, uint64_t n)
{
	struct model_op *op = begin(a, "append");

	op->file = a->slot[s].file;
	op->off = a->m->file[op->file].size;
	op->len = n;
	op->writes = true;
	model_write(a->m, op->file, op->off, p, n);
	CHECK_EQ(must(sfs_lseek(a->slot[s].fd, 0, SEEK_END), "lseek"), op->off);
	CHECK_EQ(must(sfs_write(a->slot[s].fd, p, n, -1), "append"), n);
	end(a);
}

static void app_writev(struct app *a, int s, uint64_t off, const uint8_t *p, const uint32_t n[3], int flags)
{
	const struct iovec iov[3] = {{(void *)p, n[0]}, {(void *)(p + n[0]), n[1]}, {(void *)(p + n[0] + n[1]), n[2]}};
	struct model_op *op = begin(a, flags ? "dsync writev" : "writev");

	op->file = a->slot[s].file;
	op->off = off;
	op->len = n[0] + n[1] + n[2];
	op->writes = true;
	op->syncs = flags != 0;
	model_write(a->m, op->file, off, p, op->len);
	CHECK_EQ(must(sfs_writev(a->slot[s].fd, iov, 3, (off_t)off, flags), "writev"), op->len);
	end(a);
}

void app_truncate(struct app *a, int s, uint64_t size)
{
	struct model_op *op = begin(a, "truncate");

	op->file = a->slot[s].file;
	op->off = size;
	op->cuts = true;
	model_truncate(a->m, op->file, size);
	must(sfs_ftruncate(a->slot[s].fd, (off_t)size), "truncate");
	end(a);
}

static void app_fallocate(struct app *a, int s, int mode, uint64_t off, uint64_t n)
{
	struct model_op *op = begin(a, mode ? "punch" : "fallocate");

	op->file = a->slot[s].file;
	op->off = off;
	op->len = n;
	op->cuts = true;
	op->parts = mode != 0;
	if (mode)
		model_punch(a->m, op->file, off, n);
	else if (off + n > a->m->file[op->file].size)
		model_truncate(a->m, op->file, off + n);
	must(sfs_fallocate(a->slot[s].fd, mode, (off_t)off, (off_t)n), "fallocate");
	end(a);
}

void app_fsync(struct app *a, int s, bool data_only)
{
	struct model_op *op = begin(a, data_only ? "fdatasync" : "fsync");

	op->file = a->slot[s].file;
	op->syncs = true;
	must(sfs_fsync(a->slot[s].fd, data_only), "fsync");
	end(a);
}

/* The preload layer's part of these: staged bytes first, then the kernel, then what the mode wants (src/preload/path.c). */
void app_rename(struct app *a, const char *from, const char *to)
{
	struct model_op *op = begin(a, "rename");
	struct model_name *x = model_find(a->m, from), *y = model_find(a->m, to);

	CHECK(x);
	op->file = x->file;
	op->names = true;
	if (y)
		y->type = KERN_FREE;
	snprintf(x->path, sizeof(x->path), "%s", to);
	must(sfs_make_path_true(AT_FDCWD, full(from), AT_SYMLINK_NOFOLLOW), "rename");
	must(kern_rename(AT_FDCWD, full(from), AT_FDCWD, full(to), 0), "rename");
	must(sfs_names_durable(AT_FDCWD, full(from), AT_FDCWD, full(to)), "rename");
	end(a);
}

void app_unlink(struct app *a, const char *path)
{
	struct model_op *op = begin(a, "unlink");
	struct model_name *x = model_find(a->m, path);

	CHECK(x);
	op->file = x->file;
	op->names = true;
	x->type = KERN_FREE;
	must(sfs_make_path_true(AT_FDCWD, full(path), AT_SYMLINK_NOFOLLOW), "unlink");
	must(kern_unlink(AT_FDCWD, full(path), 0), "unlink");
	must(sfs_name_durable(AT_FDCWD, full(path)), "unlink");
	end(a);
}

static void app_link(struct app *a, const char *from, const char *to)
{
	struct model_op *op = begin(a, "link");
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
	must(sfs_make_path_true(AT_FDCWD, full(from), AT_SYMLINK_NOFOLLOW), "link");
	must(kern_link(AT_FDCWD, full(from), AT_FDCWD, full(to)), "link");
	must(sfs_name_durable(AT_FDCWD, full(to)), "link");
	end(a);
}

/* A directory or a symbolic link: made, or removed. */
static void app_other(struct app *a, const char *path, enum kern_type type, bool make)
{
	struct model_op *op = begin(a, make ? "mkdir" : "rmdir");
	long r;

	op->names = true;
	if (make) {
		const int f = model_create(a->m, path, type == KERN_DIR ? 0755 : 0777);

		a->m->nfiles = f; /* it has no content */
		model_find(a->m, path)->type = (uint8_t)type;
		model_find(a->m, path)->file = -1;
		r = type == KERN_DIR ? kern_mkdir(AT_FDCWD, full(path), 0755) : kern_symlink("A", AT_FDCWD, full(path));
	} else {
		model_find(a->m, path)->type = KERN_FREE;
		r = kern_unlink(AT_FDCWD, full(path), type == KERN_DIR ? AT_REMOVEDIR : 0);
	}
	must(r, op->what);
	must(sfs_name_durable(AT_FDCWD, full(path)), op->what);
	end(a);
}

static void app_chmod(struct app *a, int s, mode_t mode)
{
	struct model_op *op = begin(a, "fchmod");

	op->file = a->slot[s].file;
	op->names = true;
	for (unsigned i = 0; i < MODEL_NAMES; i++)
		if (a->m->name[i].type && a->m->name[i].file == op->file)
			a->m->name[i].mode = (uint16_t)mode;
	must(kern_chmod(kern_fd_ino(a->slot[s].fd), mode), "fchmod");
	must(sfs_fd_durable(a->slot[s].fd), "fchmod");
	end(a);
}

void app_fsync_dir(struct app *a)
{
	int fd = kern_open(AT_FDCWD, "/v", O_RDONLY | O_DIRECTORY, 0);

	begin(a, "fsync of the directory");
	kern_call(SYS_fsync, fd, 0, 0, 0, 0, 0, NULL);
	end(a);
	kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
}

static int publish_one(struct sfs_inode *in, void *arg)
{
	if (in->live || in->staged > 0)
		sfs_flush_unlocked(in, *(const enum sfs_flush *)arg);
	return 0;
}

/* What the service thread does after a while, and after a longer one. */
static void app_tick(struct app *a, enum sfs_flush how)
{
	begin(a, how == SFS_PUBLISH ? "publish" : "retire");
	sfs_inodes_each(&sfs.volumes[0], publish_one, &how);
	end(a);
}

/* ---- operations */

static const struct {
	char letter;
	const char *what;
} letters[] = {
	{'a', "append 64 bytes to A"},
	{'p', "append 4096 bytes to A"},
	{'u', "append 5000 bytes to A"},
	{'L', "append 36000 bytes to A"},
	{'o', "overwrite 100 bytes of A"},
	{'O', "overwrite 5000 bytes of A, over a border of blocks"},
	{'w', "overwrite 100 bytes at the end of A"},
	{'e', "write 200 bytes over the end of A"},
	{'h', "write behind the end of A"},
	{'v', "writev of three pieces to the end of A"},
	{'y', "writev with RWF_DSYNC to the end of A"},
	{'t', "truncate A to half"},
	{'T', "extend A by truncate"},
	{'F', "fallocate behind the end of A"},
	{'P', "punch a hole into A"},
	{'f', "fsync A"},
	{'d', "fdatasync A"},
	{'c', "close A and open it again"},
	{'k', "the service thread publishes: relinks what is staged"},
	{'K', "the service thread retires: and commits"},
	{'n', "create B, write 3000 bytes"},
	{'b', "append 64 bytes to B"},
	{'B', "append 9000 bytes to B"},
	{'g', "fsync B"},
	{'r', "rename A to N"},
	{'R', "rename B over A and go on with it as A"},
	{'l', "link A to L"},
	{'x', "unlink B and close it"},
	{'X', "unlink A, create it again, append 100 bytes"},
	{'q', "make directory E and rename A into it"},
	{'2', "append 5000 bytes to A through a second descriptor"},
	{'j', "open a file that another program has just made, write 100 bytes"},
	{'G', "truncate A to 4296 bytes"},
	{'D', "make a directory, or remove it"},
	{'s', "make a symbolic link, or remove it"},
	{'m', "fchmod A"},
	{'z', "append 64 bytes to A until the log is full"},
};

const char *workload_letters(void)
{
	static char s[sizeof(letters) / sizeof(letters[0]) + 1];

	for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
		s[i] = letters[i].letter;
	return s;
}

const char *workload_describe(char letter)
{
	for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
		if (letters[i].letter == letter)
			return letters[i].what;
	return NULL;
}

/* Bytes that say which call wrote them. */
static uint8_t *bytes(const struct app *a, uint64_t n)
{
	static uint8_t buf[KERN_FILE_BLOCKS * KERN_BLOCK];
	uint64_t seed = (uint64_t)a->n * 0x9e3779b97f4a7c15ull + 77;

	CHECK(n <= sizeof(buf));
	test_fill(&seed, buf, n);
	for (uint64_t i = 0; i < n; i += 16)
		buf[i] = (uint8_t)(1 + a->n);
	return buf;
}

static uint64_t size_of(const struct app *a, int s)
{
	return a->r->h.state[a->n].file[a->slot[s].file].size;
}

static void operate(struct app *a, char letter)
{
	static const uint32_t pieces[3] = {10, 4500, 300};
	const bool has_b = a->slot[B].fd >= 0;
	const uint64_t size = size_of(a, A);

	if (size > (KERN_FILE_BLOCKS - 12) * KERN_BLOCK || (strchr("bBgRx", letter) && !has_b) || (letter == 'n' && has_b)) {
		a->pointless = true;
		return;
	}
	switch (letter) {
	case 'a':
		app_append(a, A, bytes(a, 64), 64);
		break;
	case 'p':
		app_append(a, A, bytes(a, 4096), 4096);
		break;
	case 'u':
		app_append(a, A, bytes(a, 5000), 5000);
		break;
	case 'L':
		app_append(a, A, bytes(a, 36000), 36000);
		break;
	case 'o':
		app_write(a, A, 50, bytes(a, 100), 100);
		break;
	case 'O':
		app_write(a, A, 1000, bytes(a, 5000), 5000);
		break;
	case 'w':
		app_write(a, A, size > 100 ? size - 100 : 0, bytes(a, 100), 100);
		break;
	case 'e':
		app_write(a, A, size > 70 ? size - 70 : 0, bytes(a, 200), 200);
		break;
	case 'h':
		app_write(a, A, size + 3000, bytes(a, 100), 100);
		break;
	case 'v':
		app_writev(a, A, size, bytes(a, 4810), pieces, 0);
		break;
	case 'y':
		app_writev(a, A, size, bytes(a, 4810), pieces, 2 /* RWF_DSYNC */);
		break;
	case 't':
		app_truncate(a, A, size / 2);
		break;
	case 'T':
		app_truncate(a, A, size + 2500);
		break;
	case 'F':
		app_fallocate(a, A, 0, size, 5000);
		break;
	case 'P':
		app_fallocate(a, A, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, size / 2);
		break;
	case 'f':
	case 'd':
		app_fsync(a, A, letter == 'd');
		break;
	case 'c': {
		char path[24];

		strcpy(path, a->slot[A].path);
		app_close(a, A);
		app_open(a, path, false);
		break;
	}
	case 'k':
		app_tick(a, SFS_PUBLISH);
		break;
	case 'K':
		app_tick(a, SFS_RETIRE);
		break;
	case 'n':
		app_open(a, "B", true);
		app_append(a, B, bytes(a, 3000), 3000);
		break;
	case 'b':
		app_append(a, B, bytes(a, 64), 64);
		break;
	case 'B':
		app_append(a, B, bytes(a, 9000), 9000);
		break;
	case 'g':
		app_fsync(a, B, false);
		break;
	case 'r':
		if (strcmp(a->slot[A].path, "N") == 0) {
			a->pointless = true;
			break;
		}
		app_rename(a, a->slot[A].path, "N");
		strcpy(a->slot[A].path, "N");
		break;
	case 'R':
		app_rename(a, "B", a->slot[A].path);
		strcpy(a->slot[B].path, a->slot[A].path);
		app_close(a, A);
		a->slot[A] = a->slot[B];
		a->slot[B].fd = -1;
		break;
	case 'j': {
		int s;

		a->pointless = model_find(&a->r->h.state[a->n], "J") != NULL;
		if (a->pointless)
			break;
		s = app_open_foreign(a, "J");
		app_append(a, s, bytes(a, 100), 100);
		app_close(a, s);
		break;
	}
	case 'G':
		app_truncate(a, A, 4296);
		break;
	case 'q':
		a->pointless = strcmp(a->slot[A].path, "A") != 0 || model_find(&a->r->h.state[a->n], "E");
		if (a->pointless)
			break;
		app_other(a, "E", KERN_DIR, true);
		app_rename(a, "A", "E/A");
		strcpy(a->slot[A].path, "E/A");
		break;
	case '2': {
		const int second = app_open(a, a->slot[A].path, false);

		app_append(a, second, bytes(a, 5000), 5000);
		app_close(a, second);
		break;
	}
	case 'l':
		a->pointless = model_find(&a->r->h.state[a->n], "L") != NULL;
		if (!a->pointless)
			app_link(a, a->slot[A].path, "L");
		break;
	case 'x':
		app_unlink(a, "B");
		app_close(a, B);
		break;
	case 'X': {
		char path[24];

		strcpy(path, a->slot[A].path);
		app_unlink(a, path);
		app_close(a, A);
		app_open(a, path, true);
		app_append(a, A, bytes(a, 100), 100);
		break;
	}
	case 'D':
	case 's': {
		const char *path = letter == 'D' ? "D" : "S";
		const bool there = model_find(&a->r->h.state[a->n], path) != NULL;

		app_other(a, path, letter == 'D' ? KERN_DIR : KERN_LINK, !there);
		break;
	}
	case 'm':
		app_chmod(a, A, 0600 + (a->n & 7));
		break;
	case 'z':
		for (int i = 0; i < 28; i++)
			app_append(a, A, bytes(a, 64), 64);
		break;
	default:
		FAIL("no operation '%c'", letter);
	}
}

/* ---- the run */

static long hook(long n, long a, long b, long c, long d, long e, long f)
{
	return kern_call(n, a, b, c, d, e, f, __builtin_return_address(0));
}

/* File A with 6000 bytes, committed, before anything is recorded. */
static void prepare(struct run *r)
{
	struct model *m;
	uint8_t buf[6000];
	uint64_t seed = 5;
	int fd;

	kern_format(r->fs, r->dax);
	agent_make_volume();
	test_fill(&seed, buf, sizeof(buf));
	fd = kern_open(AT_FDCWD, "/v/A", O_RDWR | O_CREAT, 0644);
	kern_pwrite(kern_fd_ino(fd), buf, sizeof(buf), 0);
	kern_forget_process();
	r->h.state = reallocarray(r->h.state, 1, sizeof(*r->h.state));
	m = r->h.state;
	CHECK(m);
	memset(m, 0, sizeof(*m));
	model_reset();
	model_write(m, model_create(m, "A", 0644), 0, buf, sizeof(buf));
}

bool run_workload(struct run *r)
{
	static char config[64];
	char *envp[] = {config, "SPLITFS_VISIBILITY_MS=1000000", NULL};
	struct app a = {.r = r};
	uint32_t starts;

	record_reset_memory();
	kern_on = true;
	sys_hook = hook;
	kern.pm = record_memory();
	prepare(r);
	r->base_blocks = kern.next_block;
	r->base = realloc(r->base, (size_t)r->base_blocks * KERN_BLOCK);
	CHECK(r->base);
	memcpy(r->base, kern.pm, (size_t)r->base_blocks * KERN_BLOCK);
	r->base_hash = hash_bytes(0, r->base, (size_t)r->base_blocks * KERN_BLOCK);

	snprintf(config, sizeof(config), "SPLITFS_CONFIG=%s:/v:/a", mode_name(r->mode));
	memset(&sfs, 0, sizeof(sfs));
	memset(sfs_ops, 0, sizeof(sfs_ops));
	agent_start();
	sfs_init(envp);
	sfs.service_state = 1; /* there is no thread; what it does is an operation of the workload */
	r->h.mode = r->mode;
	r->h.dax = r->dax;
	r->h.n = 0;
	r->prefix[0] = hash_bytes((uint64_t)r->mode << 8 | (uint64_t)r->fs << 4 | r->dax, "", 0);
	for (int i = 0; i < SLOTS; i++)
		a.slot[i].fd = -1;
	record_start(&r->t);
	r->first = 0;
	if (r->workload[0] == '@') {
		CHECK(trace_play(&a, r->workload + 1));
	} else {
		app_open(&a, "A", false);
		for (const char *s = r->workload; *s && !a.pointless; s++) {
			starts = (uint32_t)a.n;
			operate(&a, *s);
			r->first = s == r->workload ? 0 : starts;
		}
	}
	record_stop();
	agent_stop();
	kern_forget_process();
	sfs_fds = NULL;
	sfs_fds_len = 0;
	kern_on = false;
	return !a.pointless;
}
