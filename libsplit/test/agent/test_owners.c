/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's table: a grant is counted before it is given and until its holder has stepped down or is recovered, also across a restart of
 * the agent; a file that somebody changes by the kernel is granted to nobody else; LOOK is answered when the kernel's view is true.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "format/owners.h"
#include "played.h"

static struct played_agent a;
static struct world w;
static struct world_file f;
static const uint64_t *table;

/* A client that goes by the table. */
static void hello(struct played *c)
{
	struct sfs_msg m = {
		.version = SFS_PROTO_OLDEST, .type = SFS_MSG_HELLO, .c = (SFS_FEATURES & ~SFS_FEATURE_TURN) | 1ull << 40};
	int fds[3];

	c->sock = played_connect(&a);
	CHECK(c->sock >= 0);
	CHECK_EQ(played_send(c->sock, &m, sizeof(m), &f.fd, 1), 0);
	CHECK_EQ(played_recv(c->sock, &m, fds, 3, PATIENCE), 1);
	CHECK_EQ(m.status, 0);
	/* Not more than both know of, and what root may do. */
	CHECK_EQ(m.b >> SFS_FEATURES_SHIFT, SFS_FEATURE_OWNERS | SFS_FEATURE_GROW | SFS_FEATURE_FILES | SFS_FEATURE_KERNEL |
						    SFS_FEATURE_QUIET | SFS_FEATURE_CODE | SFS_FEATURE_LEFT |
						    (geteuid() == 0 ? SFS_FEATURE_WATCH | SFS_FEATURE_OUTSIDE : 0));
	CHECK(fds[2] >= 0 && (fcntl(fds[2], F_GETFL) & O_ACCMODE) == O_RDONLY);
	table = mmap(NULL, SFS_OWNERS_BYTES, PROT_READ, MAP_SHARED, fds[2], 0);
	CHECK(table != MAP_FAILED);
	close(fds[2]);
	c->log_fd = fds[0];
	c->event = fds[1];
	c->log = (uint32_t)m.a;
	c->chunk_bytes = m.c;
}

static uint64_t word(void)
{
	const uint32_t i = sfs_owners_index(f.ino);
	uint64_t v, all;
	int tries = 0;

	/* Nobody has another file. One is changed after the other. */
	do {
		v = __atomic_load_n(&table[i], __ATOMIC_SEQ_CST);
		all = __atomic_load_n(&table[SFS_OWNERS_ALL], __ATOMIC_SEQ_CST);
	} while ((uint32_t)all != (uint32_t)v && tries++ < 1000 && usleep(1000) == 0);
	CHECK_EQ((uint32_t)all, (uint32_t)v);
	return v;
}

static int try(struct played *c)
{
	return played_acquire(c, &f, SFS_ACQ_TRY);
}

static void look(struct played *c, uint64_t flags, uint64_t number)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_LOOK, .a = f.ino, .c = flags, .d = number};

	CHECK_EQ(played_send(c->event, &m, sizeof(m), NULL, 0), 0);
}

static bool looked(struct played *c, uint64_t number, int timeout_ms)
{
	struct sfs_msg m;

	if (played_recv(c->event, &m, NULL, 0, timeout_ms) != 1)
		return false;
	CHECK_EQ(m.type, SFS_MSG_LOOKED);
	CHECK_EQ(m.status, 0);
	CHECK_EQ(m.a, f.ino);
	CHECK_EQ(m.d, number);
	CHECK_EQ(m.c, sfs_owners_number(word()));
	return true;
}

static void claim(struct played *c, uint32_t place, uint64_t ino)
{
	const off_t at =
		SFS_CLAIMS_OFFSET + (off_t)offsetof(struct sfs_claims, claim) + place * (off_t)sizeof(struct sfs_claim);

	CHECK_EQ(pwrite(c->log_fd, &ino, 8, at), 8);
}

static void release(struct played *c)
{
	played_notify(c, SFS_MSG_RELEASE, f.ino, f.gen);
	EVENTUALLY((uint32_t)word() == 0);
}

static void counted(void)
{
	struct world_file ro = {openat(w.root.fd, "f", O_RDONLY), f.ino, f.gen};
	struct played c, d;
	uint32_t number;

	hello(&c);
	hello(&d);
	number = sfs_owners_number(word());
	CHECK_EQ((uint32_t)word(), 0);
	EVENTUALLY(try(&c) == SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(sfs_owners_stagers(word()), 1);
	CHECK(sfs_owners_number(word()) != number);
	number = sfs_owners_number(word());
	/* Refused at once, and nothing is left of it. */
	CHECK_EQ(try(&d), SFS_DELEG_NONE);
	CHECK_EQ(sfs_owners_number(word()), number);
	CHECK_EQ(played_recv(c.event, &(struct sfs_msg){0}, NULL, 0, 50), -EAGAIN);
	release(&c);
	/* Who can't stage is counted by itself. */
	CHECK_EQ(played_acquire(&d, &ro, SFS_ACQ_TRY), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(sfs_owners_stagers(word()), 0);
	CHECK(sfs_owners_any(word()));
	look(&c, 0, 7);
	CHECK(looked(&c, 7, PATIENCE));
	CHECK(sfs_owners_any(word()));
	played_close(&d);
	EVENTUALLY((uint32_t)word() == 0);
	played_close(&c);
	close(ro.fd);
}

/* Who lets the kernel serve the file is granted nothing to stage, though nobody else has it. */
static void by_kernel(void)
{
	struct played c, d;

	hello(&c);
	hello(&d);
	CHECK_EQ(played_acquire(&c, &f, SFS_ACQ_KERNEL), SFS_DELEG_SHARED);
	CHECK_EQ((uint32_t)word(), 0);
	CHECK_EQ(played_acquire(&c, &f, SFS_ACQ_KERNEL | SFS_ACQ_TRY), SFS_DELEG_NONE);
	CHECK_EQ(played_acquire(&d, &f, 0), SFS_DELEG_EXCLUSIVE);
	played_close(&d);
	EVENTUALLY((uint32_t)word() == 0);
	/* It has asked for that once only. */
	CHECK_EQ(played_acquire(&c, &f, SFS_ACQ_KERNEL), SFS_DELEG_SHARED);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(sfs_owners_stagers(word()), 1);
	release(&c);
	played_close(&c);
}

static void claimed(void)
{
	struct played c, d;
	uint64_t one = 1, none = 0;

	hello(&c);
	hello(&d);
	claim(&d, 3, f.ino);
	CHECK_EQ(try(&c), SFS_DELEG_NONE);
	CHECK_EQ((uint32_t)word(), 0);
	EVENTUALLY(try(&d) == SFS_DELEG_EXCLUSIVE); /* its own claim is its own affair */
	release(&d);
	claim(&d, 3, f.ino + 1);
	EVENTUALLY(try(&c) == SFS_DELEG_EXCLUSIVE);
	release(&c);
	CHECK_EQ(pwrite(d.log_fd, &one, 8, SFS_CLAIMS_OFFSET), 8); /* of no particular inode */
	CHECK_EQ(try(&c), SFS_DELEG_NONE);
	/* A claim that does not end: who must have an answer gets SHARED. */
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_SHARED);
	CHECK_EQ(pwrite(d.log_fd, &none, 8, SFS_CLAIMS_OFFSET), 8);
	CHECK_EQ(try(&d), SFS_DELEG_NONE); /* the other one has the file open, and may go on without looking */
	release(&c);
	EVENTUALLY(try(&d) == SFS_DELEG_EXCLUSIVE);
	release(&d);
	played_close(&c);
	played_close(&d);
}

static bool come_and_go;

static void *comes_and_goes(void *arg)
{
	while (__atomic_load_n(&come_and_go, __ATOMIC_RELAXED)) {
		claim(arg, 5, f.ino);
		claim(arg, 5, 0);
	}
	return NULL;
}

/* Another client's short claims, as of a program that writes by the kernel: who must have the file alone gets it, whenever they end. */
static void short_claims(void)
{
	struct played c, d;
	pthread_t thread;

	hello(&c);
	hello(&d);
	come_and_go = true;
	CHECK_EQ(pthread_create(&thread, NULL, comes_and_goes, &d), 0);
	for (int i = 0; i < 1000; i++) {
		CHECK_EQ(played_acquire(&c, &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
		played_notify(&c, SFS_MSG_RELEASE, f.ino, f.gen);
	}
	__atomic_store_n(&come_and_go, false, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	played_close(&c);
	played_close(&d);
}

static void looks(void)
{
	struct played c, d;
	struct sfs_msg m;

	hello(&c);
	hello(&d);
	look(&d, 0, 1);
	CHECK(looked(&d, 1, PATIENCE));
	EVENTUALLY(try(&c) == SFS_DELEG_EXCLUSIVE);
	look(&d, 0, 2);
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK(!looked(&d, 2, 50)); /* not before it has stepped down */
	CHECK_EQ(sfs_owners_stagers(word()), 1);
	played_revoked(&c, &m, true);
	CHECK(looked(&d, 2, PATIENCE));
	CHECK_EQ((uint32_t)word(), 0);
	EVENTUALLY(try(&d) == SFS_DELEG_EXCLUSIVE);
	/* One's own grant is no answer to wait for. */
	look(&d, SFS_LOOK_CHANGE, 3);
	CHECK(looked(&d, 3, PATIENCE));
	/* Who has the file mapped answers that it keeps SHARED, and nobody is granted more. */
	look(&c, 0, 4);
	CHECK_EQ(played_revoke(&d, &f, PATIENCE, &m), SFS_DELEG_NONE);
	m.c = SFS_DELEG_SHARED;
	played_revoked(&d, &m, true);
	CHECK(looked(&c, 4, PATIENCE));
	CHECK_EQ(try(&c), SFS_DELEG_NONE);
	release(&d);
	EVENTUALLY(try(&c) == SFS_DELEG_EXCLUSIVE);
	release(&c);
	played_close(&c);
	played_close(&d);
}

/*
 * The holder dies with a record in its log: whoever looks is answered when the bytes are in the file. restart: by that signal the agent ends before, and
 * the table says the same without one; or 0.
 */
static void death(int restart)
{
	struct played c, d, e;
	char buf[300], back[300];
	uint32_t chunk = 0;
	int fd;

	memset(buf, 'd', sizeof(buf));
	CHECK_EQ(ftruncate(f.fd, 100), 0);
	hello(&c);
	hello(&d);
	EVENTUALLY(try(&c) == SFS_DELEG_EXCLUSIVE);
	fd = played_chunk(&c, &chunk);
	CHECK_EQ(pwrite(fd, buf, 300, 100), 300);
	played_record(&w, &c, &f, 0, chunk, 100, 300, 100);
	if (restart) {
		CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, c.log_fd, 0) != MAP_FAILED);
		agent_stop(&a, restart);
		CHECK_EQ(sfs_owners_stagers(word()), 1);
		agent_start(&a, &w);
		hello(&e);
		CHECK_EQ(sfs_owners_stagers(word()), 1); /* it lives, and has not come back */
		look(&e, 0, 6);
		CHECK(!looked(&e, 6, 50));
		played_close(&e);
		played_close(&d);
		hello(&d);
		/* The same process, with the log's number as proof: its end is what the agent waits for. */
		CHECK_EQ(played_hello(&e, &a, SFS_POSIX, c.log, c.log_fd), 0);
		played_close(&e);
	}
	look(&d, 0, 5);
	played_close(&c);
	CHECK(looked(&d, 5, PATIENCE));
	CHECK_EQ((uint32_t)word(), 0);
	CHECK_EQ(pread(f.fd, back, 300, 100), 300);
	CHECK_MEM(back, buf, 300);
	played_close(&d);
	close(fd);
}

/* One that has never heard of the table has what it is granted, and nobody else gets more. */
static void older_client(void)
{
	struct played c, d;

	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	hello(&d);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(sfs_owners_stagers(word()), 1);
	CHECK_EQ(try(&d), SFS_DELEG_NONE);
	look(&d, SFS_LOOK_CHANGE, 9);
	played_give_up(&c, &f);
	CHECK(looked(&d, 9, PATIENCE));
	/* It asks again, and waits for the other's claim. */
	claim(&d, 0, f.ino);
	played_ask(&c, &f, f.fd, 0);
	CHECK_EQ(played_answer(&c, 5), -EAGAIN);
	claim(&d, 0, 0);
	CHECK(played_answer(&c, PATIENCE) >= SFS_DELEG_SHARED);
	CHECK_EQ(try(&d), SFS_DELEG_NONE);
	played_close(&c);
	EVENTUALLY(try(&d) == SFS_DELEG_EXCLUSIVE);
	played_close(&d);
}

static void peek(void)
{
	const struct sfs_msg ask = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_PEEK};
	struct sfs_msg m;
	int fd, sock = played_connect(&a);

	CHECK_EQ(played_send(sock, &ask, sizeof(ask), &f.fd, 1), 0);
	CHECK_EQ(played_recv(sock, &m, &fd, 1, PATIENCE), 1);
	CHECK_EQ(m.type, SFS_MSG_PEEK);
	CHECK_EQ(m.status, 0);
	CHECK(fd >= 0 && mmap(NULL, SFS_OWNERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK_EQ(played_recv(sock, &m, NULL, 0, PATIENCE), 0);
	close(fd);
	close(sock);
	/* Not for who has no file of the volume. */
	sock = played_connect(&a);
	CHECK_EQ(played_send(sock, &ask, sizeof(ask), NULL, 0), 0);
	CHECK_EQ(played_recv(sock, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.status, -EACCES);
	close(sock);
}

int main(void)
{
	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	agent_start(&a, &w);
	counted();
	by_kernel();
	claimed();
	short_claims();
	looks();
	death(0);
	older_client();
	peek();
	death(SIGKILL);
	death(SIGTERM);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
