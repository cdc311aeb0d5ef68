/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that have a file open for writing in ways that are hard to see: a client never has the file to itself
 * meanwhile, and is told when it had it.
 */
#include "outsider.h"

#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

static struct world w;
static struct played_agent a;
static struct world_file f;
static struct played c;

static int open_f(int flags)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/f", w.dir);
	return open(path, flags);
}

/* Somebody else opens it for reading and closes it: what the agent looks again for. */
static void other_closes(void)
{
	struct outsider o = outsider_open(&w, O_RDONLY);

	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	outsider_close(&o);
	outsider_end(&o);
	usleep(100000);
}

/* It stays so, whoever closes it. */
static void shared_still(void)
{
	usleep(300000);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	other_closes();
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
}

/* And when that program has ended the client may have it. */
static void over(struct outsider *o)
{
	outsider_end(o);
	played_give_up(&c, &f);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
}

/* It opens the file, and has it until it is told to end. */
static void kept_apart(struct outsider *o)
{
	played_give_up(&c, &f);
	CHECK_EQ(outsider_said(o, PATIENCE), 'o');
	shared_still();
	over(o);
}

/* ---- a thread has it whose process's first thread has ended, or that has a table of its own ---- */

static bool own_table;

static void *thread_has(void *arg)
{
	char ch;
	int fd;

	(void)arg;
	if (own_table && unshare(CLONE_FILES) < 0)
		_exit(3);
	if (!own_table)
		usleep(20000); /* the first one ends */
	fd = open_f(O_WRONLY | O_APPEND);
	if (fd < 0 || write(1, "o", 1) != 1 || read(0, &ch, 1) < 0)
		_exit(1);
	_exit(0);
}

static void threads(bool table)
{
	struct outsider o;

	own_table = table;
	o = outsider_fork();
	if (o.pid == 0) {
		pthread_t t;

		pthread_create(&t, NULL, thread_has, NULL);
		if (table)
			pthread_join(t, NULL);
		syscall(SYS_exit, 0); /* as pthread_exit() does in the end */
	}
	kept_apart(&o);
}

/* ---- a direct descriptor of a ring ---- */

static int ring_open(void)
{
	struct io_uring_params p = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &p), none = -1;
	static char path[256];
	unsigned char *sq, *cq;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;

	if (ring < 0)
		return -errno;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		  IORING_OFF_CQ_RING);
	sqe = mmap(NULL, p.sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &none, 1) < 0)
		return -errno;
	snprintf(path, sizeof(path), "%s/f", w.dir);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_OPENAT;
	sqe->fd = AT_FDCWD;
	sqe->addr = (unsigned long)path;
	sqe->open_flags = O_WRONLY | O_APPEND;
	sqe->file_index = 1;
	*(unsigned *)(sq + p.sq_off.array) = 0;
	__atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		return -errno;
	cqe = (void *)(cq + p.cq_off.cqes);
	if (cqe->res < 0)
		return cqe->res;
	__atomic_store_n((unsigned *)(cq + p.cq_off.head), 1, __ATOMIC_RELEASE);
	return 0;
}

static void ring(void)
{
	struct outsider o = outsider_fork();
	char said;

	if (o.pid == 0) {
		const int r = ring_open();
		char ch = r == -ENOSYS || r == -EPERM || r == -EINVAL ? 'n' : 'o';

		_exit((r == 0 || ch == 'n') && write(1, &ch, 1) == 1 && read(0, &ch, 1) == 0 ? 0 : 1);
	}
	said = outsider_said(&o, 500);
	if (said == 'n') {
		printf("no rings with direct descriptors here\n");
		outsider_end(&o);
		return;
	}
	kept_apart(&o);
}

/* ---- a process that has connected and said nothing ---- */

static void stranger(void)
{
	struct outsider o = outsider_fork();

	if (o.pid == 0) {
		char ch;

		CHECK(played_connect(&a) >= 0);
		usleep(100000);
		_exit(open_f(O_WRONLY | O_APPEND) >= 0 && write(1, "o", 1) == 1 && read(0, &ch, 1) == 0 ? 0 : 1);
	}
	kept_apart(&o);
}

/* ---- a debugger of the client, which is let go at once ---- */

static void debugger(void)
{
	struct outsider o = outsider_fork();

	if (o.pid == 0) {
		char ch;

		_exit(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0 && open_f(O_WRONLY | O_APPEND) >= 0 &&
				      write(1, "o", 1) == 1 && read(0, &ch, 1) == 0
			      ? 0
			      : 1);
	}
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	played_give_up(&c, &f);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	over(&o);
}

/* ---- it has handed it on to a child, and has ended ---- */

static void handed_on(void)
{
	struct outsider o = outsider_fork();
	int status;
	char ch;

	if (o.pid == 0) {
		if (open_f(O_WRONLY | O_APPEND) < 0)
			_exit(1);
		if (fork() == 0)
			_exit(write(1, "o", 1) == 1 && read(0, &ch, 1) == 0 ? 0 : 1);
		_exit(0);
	}
	played_give_up(&c, &f);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	shared_still();
	close(o.in);
	close(o.out);
	played_give_up(&c, &f);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
}

/* ---- a process opens it by itself before its library says HELLO ---- */

static void before_hello(void)
{
	struct outsider o = outsider_fork();

	if (o.pid == 0) {
		struct played mine;
		char ch;
		int fd = open_f(O_WRONLY | O_APPEND), fd2;

		if (fd < 0 || write(1, "o", 1) != 1 || read(0, &ch, 1) != 1)
			_exit(1);
		fd2 = open_f(O_RDWR);
		CHECK_EQ(played_hello_knows(&mine, &a, SFS_POSIX, 0, fd2, SFS_FEATURE_CODE), 0);
		ch = (char)('0' + played_acquire(&mine, &(struct world_file){.ino = f.ino, .gen = f.gen, .fd = fd2}, 0));
		_exit(write(1, &ch, 1) == 1 && read(0, &ch, 1) == 0 ? 0 : 1);
	}
	played_give_up(&c, &f);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	played_notify(&c, SFS_MSG_RELEASE, f.ino, f.gen);
	usleep(50000);
	CHECK_EQ(write(o.in, "x", 1), 1);
	CHECK_EQ(outsider_said(&o, PATIENCE) - '0', SFS_DELEG_SHARED);
	outsider_end(&o);
	usleep(100000);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
}

/* ---- the agent is another one ---- */

static void restart(void)
{
	struct outsider o = outsider_open(&w, O_WRONLY | O_APPEND);
	struct played again;
	struct sfs_msg m;

	played_give_up(&c, &f);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, c.log_fd, 0) != MAP_FAILED); /* of a process that lives */
	agent_stop(&a, SIGTERM);
	agent_start(&a, &w);
	close(c.sock);
	close(c.event);
	CHECK_EQ(played_hello(&again, &a, SFS_POSIX, c.log, c.log_fd), 0);
	close(again.log_fd);
	c.sock = again.sock;
	c.event = again.event;
	CHECK_EQ(played_acquire(&c, &f, SFS_ACQ_RECLAIM), SFS_DELEG_SHARED);
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(&c, &m, true);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	shared_still();
	outsider_close(&o);
	over(&o);
}

int main(void)
{
	outsider_world(&w, &a, &f, 100);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	threads(false);
	threads(true);
	ring();
	stranger();
	debugger();
	handed_on();
	before_hello();
	restart();
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
