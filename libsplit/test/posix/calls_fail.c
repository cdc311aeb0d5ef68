/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A system call fails, any of those by which bytes come into a file, once: there is no space, the device has an error, memory is short, or a part
 * was done. That may be told to the program, by the call that made it or by the next fsync or close. What was acknowledged is there all the same,
 * and nothing else has changed: for the program, for another process, for one that the library does not see, and when the program is killed then.
 */
#include "asked.h"
#include "calls_fail.h"

#include <linux/fs.h>
#include <signal.h>
#include <sys/uio.h>

#define EXCHANGE _IOW('X', 129, char[40])
#define SECONDS	 20 /* for one process: a call that waits for ever ends the test */
#define TRIES	 3
#define ENOUGH	 10 /* failures to look at */
#define KB(n)	 ((off_t)(n) << 10)
#define PART	 0x10000 /* with an error: half of it is done first. Alone: half of it is all that is done */

enum kind { SHARE, SWAP, HOLE, GROW, WRITE, READ, CUT, FORCE, SEEK, STAT, MAP, TIMES, SEND, RECEIVE, KINDS };
static const struct {
	const char *name;
	int errors[4];
} kinds[KINDS] = {
	[SHARE] = {"FICLONERANGE", {ENOSPC, EIO, PART | EINVAL}},
	[SWAP] = {"XFS_IOC_EXCHANGE_RANGE", {ENOSPC, EIO, ENOMEM}},
	[HOLE] = {"punch", {PART | ENOSPC, EIO, PART | EIO, EINTR}},
	[GROW] = {"fallocate", {ENOSPC, EINTR}},
	[WRITE] = {"pwrite", {ENOSPC, EIO, PART, EDQUOT}},
	[READ] = {"pread", {EIO, ENOMEM}},
	[CUT] = {"ftruncate", {EIO, ENOSPC}},
	[FORCE] = {"fsync", {EIO, ENOSPC}},
	[SEEK] = {"lseek", {EIO, ENOMEM}},
	[STAT] = {"fstat", {EIO, ENOMEM}},
	[MAP] = {"mmap", {ENOMEM}},
	[TIMES] = {"utimensat", {EIO}},
	[SEND] = {"sendmsg", {ENOBUFS}},
	[RECEIVE] = {"recvmsg", {EINTR}},
};

static const int asked_about[] = {
	SYS_ioctl,     SYS_fallocate, SYS_pwrite64,  SYS_pwritev,   SYS_pwritev2, SYS_pread64, SYS_preadv, SYS_preadv2,
	SYS_ftruncate, SYS_fsync,     SYS_fdatasync, SYS_syncfs,    SYS_lseek,	  SYS_fstat,   SYS_statx,  SYS_newfstatat,
	SYS_mmap,      SYS_mremap,    SYS_munmap,    SYS_utimensat, SYS_sendmsg,  SYS_recvmsg,
};
#define ASKED ((int)(sizeof(asked_about) / sizeof(asked_about[0])))

static enum kind kind_of(const struct seccomp_data *d)
{
	switch (d->nr) {
	case SYS_ioctl:
		return (uint32_t)d->args[1] == FICLONERANGE ? SHARE : (uint32_t)d->args[1] == EXCHANGE ? SWAP : KINDS;
	case SYS_fallocate:
		return (int)d->args[1] == PUNCH ? HOLE : GROW;
	case SYS_pwrite64:
	case SYS_pwritev:
	case SYS_pwritev2:
		return WRITE;
	case SYS_pread64:
	case SYS_preadv:
	case SYS_preadv2:
		return READ;
	case SYS_ftruncate:
		return CUT;
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_syncfs:
		return FORCE;
	case SYS_lseek:
		return d->args[2] == SEEK_DATA || d->args[2] == SEEK_HOLE ? SEEK : KINDS;
	case SYS_fstat:
	case SYS_statx:
	case SYS_newfstatat:
		return STAT;
	case SYS_mmap:
	case SYS_mremap:
	case SYS_munmap:
		return MAP;
	case SYS_utimensat:
		return TIMES;
	case SYS_sendmsg:
		return SEND;
	case SYS_recvmsg:
		return RECEIVE;
	default:
		return KINDS;
	}
}

static void ask(int out)
{
	struct sock_filter code[ASKED + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};

	for (int i = 0; i < ASKED; i++)
		code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)asked_about[i],
							   (uint8_t)(ASKED - i), 0);
	code[ASKED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[ASKED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	be_asked(out, code, ASKED + 3);
}

/* The whole file, read by the library or by the kernel alone. */
static bool look(const char *who, bool library)
{
	const int fd = library ? open("f", O_RDONLY) : (int)unseen(SYS_openat, AT_FDCWD, (long)"f", O_RDONLY, 0);
	off_t size = 0;
	ssize_t n = fd < 0 ? -1 : 1;

	for (int tries = 0; n > 0 || (n < 0 && fd >= 0 && ++tries < TRIES); size += n > 0 ? n : 0) {
		char *to = model->found + size;
		const size_t most = (size_t)(LONGEST - size);

		n = library ? pread(fd, to, most, size) : (ssize_t)unseen(SYS_pread64, fd, (long)to, (long)most, size);
	}
	if (fd >= 0 && library)
		close(fd);
	else if (fd >= 0)
		unseen(SYS_close, fd, 0, 0, 0);
	if (n < 0)
		fprintf(stderr, "%s: can't read: %s\n", who, strerror(errno));
	return n == 0 && model_fits(who, size, model->found);
}

/* What another process with the library is to do; its answer is the same with what came of it. Who gave an order may have died meanwhile. */
struct order {
	pid_t from;
	bool writes, fine;
};

static void other(int in, int out)
{
	struct order o;

	while (read(in, &o, sizeof(o)) == sizeof(o)) {
		o.fine = look("another process", true);
		if (o.writes) {
			const int fd = open("f", O_RDWR);

			CHECK(fd >= 0);
			model_wrote(100001, 3000, pwrite(fd, model_bytes(100001), 3000, 100001));
			CHECK(close(fd) == 0);
		}
		CHECK(write(out, &o, sizeof(o)) == sizeof(o));
	}
	_exit(0);
}

static int to_other, from_other;

static bool order(bool writes)
{
	struct pollfd p = {from_other, POLLIN, 0};
	struct order o = {getpid(), writes, false}, answer;

	CHECK(write(to_other, &o, sizeof(o)) == sizeof(o));
	do {
		CHECK(poll(&p, 1, SECONDS * 1000) == 1);
		CHECK(read(from_other, &answer, sizeof(answer)) == sizeof(answer));
	} while (answer.from != o.from);
	return answer.fine;
}

static bool dies, looked;

/* After each step. What has failed by now shows at once, or is found by others when this process has died. */
static void step(void)
{
	if (!model->failed || looked)
		return;
	looked = true;
	if (dies)
		kill(getpid(), SIGKILL);
	CHECK(look("the program", true));
}

static void wr(int fd, off_t off, off_t n)
{
	model_wrote(off, n, pwrite(fd, model_bytes(off), (size_t)n, off));
	step();
}

static void cut(int fd, off_t n)
{
	model_cut(n, ftruncate(fd, n));
	step();
}

/* What fails once works again. */
static void force(int (*sync)(int), int fd)
{
	int tries = 0;

	while (sync(fd) < 0)
		CHECK(++tries < TRIES);
	step();
}

static int open_file(int flags)
{
	int fd, tries = 0;

	while ((fd = open("f", flags, 0600)) < 0)
		CHECK(++tries < TRIES);
	return fd;
}

/* As the kernel shows it. */
static void look_mapped(int fd)
{
	const char *p = mmap(NULL, LONGEST, PROT_READ, MAP_SHARED, fd, 0);
	struct stat st;

	if (p == MAP_FAILED || fstat(fd, &st) < 0)
		return;
	CHECK(model_fits("mapped", st.st_size, p));
	munmap((void *)p, LONGEST);
}

static void writer(int out)
{
	int fd;

	ask(out);
	close(out);
	alarm(SECONDS);
	fd = open_file(O_RDWR | O_CREAT);
	wr(fd, 0, KB(700));
	wr(fd, KB(700), 1300);
	wr(fd, KB(700) + 1300, 700);
	wr(fd, KB(700) + 2000, 100);
	force(fsync, fd);
	wr(fd, KB(700) + 2100, KB(600));
	wr(fd, KB(128), KB(64));
	wr(fd, 300001, 5000);
	wr(fd, KB(8), KB(600));
	force(fsync, fd);
	for (off_t off = KB(2048); off < KB(2048) + 8 * KB(8); off += KB(8))
		wr(fd, off, KB(4));
	wr(fd, KB(2300) + 5, 777);
	wr(fd, KB(3000), KB(600));
	force(fdatasync, fd);
	cut(fd, KB(2060) + 1000);
	cut(fd, KB(2500));
	wr(fd, KB(2500) - 3, 5003);
	CHECK(order(true));
	step();
	wr(fd, KB(2600), KB(520));
	wr(fd, 4000, 9000);
	look_mapped(fd);
	wr(fd, 1000, 1000);
	CHECK(close(fd) == 0 || model->failed);
	step();
	fd = open_file(O_RDWR);
	wr(fd, KB(2600) + 100, 200);
	wr(fd, KB(3120), 10);
	force(fdatasync, fd);
	wr(fd, KB(3120) + 10, 10);
	CHECK(close(fd) == 0 || model->failed);
	step();
	_exit(0);
}

/* Half of a call, from its end where a file system works from there. How much that was, or -1. */
static ssize_t half(const struct asked *by, const struct seccomp_notif *n, enum kind kind)
{
	const __u64 *a = n->data.args;
	const int fd = asked_fd(by, (int)a[0]);
	struct iovec there[64], part = {0};
	struct file_clone_range clone;
	struct iovec iov = {&clone, sizeof(clone)}, from = {(void *)a[2], sizeof(clone)};
	ssize_t r = -1;

	CHECK(fd >= 0);
	if (kind == HOLE) {
		const off_t len = (off_t)a[3] / 8192 * 4096;

		r = len ? unseen(SYS_fallocate, fd, PUNCH, (off_t)(a[2] + a[3]) - len, len) : -1;
	} else if (kind == SHARE) {
		CHECK(process_vm_readv((pid_t)n->pid, &iov, 1, &from, 1, 0) == sizeof(clone));
		clone.src_fd = asked_fd(by, (int)clone.src_fd);
		clone.src_length = clone.src_length / 8192 * 4096;
		r = clone.src_length ? unseen(SYS_ioctl, fd, FICLONERANGE, (long)&clone, 0) : -1;
		unseen(SYS_close, (int)clone.src_fd, 0, 0, 0);
	} else {
		there[0] = (struct iovec){(void *)a[1], a[2]};
		if (n->data.nr != SYS_pwrite64) {
			iov = (struct iovec){there, sizeof(there[0]) * (a[2] < 64 ? a[2] : 64)};
			from = (struct iovec){(void *)a[1], iov.iov_len};
			CHECK(process_vm_readv((pid_t)n->pid, &iov, 1, &from, 1, 0) == (ssize_t)iov.iov_len);
		}
		part = (struct iovec){model->found, there[0].iov_len / 2};
		if (part.iov_len > 0 && process_vm_readv((pid_t)n->pid, &part, 1, there, 1, 0) == (ssize_t)part.iov_len)
			r = unseen(SYS_pwrite64, fd, (long)model->found, (long)part.iov_len, (long)a[3]);
	}
	unseen(SYS_close, fd, 0, 0, 0);
	return r;
}

/* Which call fails, and how many of its kind there were. */
static struct {
	enum kind kind;
	int k, error, calls;
} failing;

static void fail_one(const struct asked *a, const struct seccomp_notif *n, struct seccomp_notif_resp *r)
{
	ssize_t part = -1;

	if (kind_of(&n->data) != failing.kind || ++failing.calls != failing.k)
		return;
	model->failed = true;
	if (failing.error & PART)
		part = half(a, n, failing.kind);
	if (failing.error == PART && part < 0)
		return; /* what can't be halved is done */
	r->flags = 0;
	if (failing.error == PART)
		r->val = part;
	else
		r->error = -(failing.error & ~PART);
}

/* One program, and what it leaves. *more: a call has failed. */
static bool run(enum kind kind, int k, int error, bool killed, bool *more)
{
	int pipes[2], status;
	struct asked a;
	bool fine;
	pid_t pid;

	unseen(SYS_unlinkat, AT_FDCWD, (long)"f", 0, 0);
	model_reset();
	dies = killed;
	CHECK(pipe(pipes) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		writer(pipes[1]);
	close(pipes[1]);
	a = ask_about(pid, pipes[0]);
	close(pipes[0]);
	failing.kind = kind;
	failing.k = k;
	failing.error = error;
	failing.calls = 0;
	answer(&a, a.process, SECONDS * 2000, fail_one);
	*more = failing.calls >= k;
	status = status_of(pid);
	asked_end(&a);
	fine = status == 0 || (killed && status == 128 + SIGKILL);
	if (!fine)
		fprintf(stderr, "status %d\n", status);
	fine = order(false) && fine;
	fine = look("the kernel", false) && fine;
	if (!fine)
		fprintf(stderr, "%s %d fails, %s%s%s\n", kinds[kind].name, k, error & PART ? "in part " : "",
			strerror(error & ~PART), killed ? ", killed" : "");
	return fine;
}

/* Each kind of call, or those that are named. */
int main(int argc, char **argv)
{
	int there[2], back[2], failed = 0;
	pid_t pid;

	model_new();
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(there[1]);
		other(there[0], back[1]);
	}
	close(there[0]);
	to_other = there[1];
	from_other = back[0];
	for (enum kind kind = 0; kind < KINDS; kind++) {
		bool more = argc < 2;

		for (int i = 1; i < argc; i++)
			more = more || strcmp(argv[i], kinds[kind].name) == 0;
		for (int k = 1; more && failed < ENOUGH; k += 1 + k / 4)
			for (int e = 0; e < 4 && (e == 0 || kinds[kind].errors[e]); e++)
				for (int killed = 0; killed < 2; killed++)
					failed += !run(kind, k, kinds[kind].errors[e], killed, &more);
	}
	close(to_other);
	CHECK(status_of(pid) == 0);
	return failed != 0;
}
