/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pattern of SQLite: a file is locked before it is first written to. In strict it is served all the same, or its overwrites would not be
 * atomic, and the lock stays. In no mode does it take questions to ask again and again how large it is.
 */
#include "asked.h"
#include "lock.h"
#include "peek.h"

#define SIZE	(64ul << 10)
#define LOOKS	500
#define MOST	50 /* messages to the agent meanwhile, for whatever else */
#define SECONDS 60

static struct sock_filter messages[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void changes(int fd, int round)
{
	struct flock f = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 1};
	char head[100];

	CHECK(pread(fd, head, sizeof(head), 0) == (round ? (ssize_t)sizeof(head) : 0));
	CHECK(fcntl(fd, F_SETLK, &f) == 0);
	f.l_type = F_WRLCK;
	CHECK(fcntl(fd, F_SETLK, &f) == 0 && lock_refused(0));
	put(fd, 1 + (unsigned)round, 0, SIZE);
	CHECK(lock_refused(0));
}

/* Another process has had the file open: the agent sees that it has closed it, which may take a moment. */
static const void *snapshot_soon(int fd, unsigned seed)
{
	const void *p;
	size_t got;

	for (int n = 0; n < 5000 && !(p = splitfs_peek(fd, 0, SIZE, &got)); n++) {
		CHECK(errno == ENOTSUP);
		usleep(1000);
	}
	CHECK(p && got == SIZE);
	expect_snapshot(p, seed, 0, SIZE);
	return p;
}

static void unlocks(int fd)
{
	struct flock f = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	CHECK(fcntl(fd, F_SETLK, &f) == 0 && !lock_refused(0));
}

static void looks(int fd)
{
	struct stat st;

	for (int i = 0; i < LOOKS; i++)
		CHECK(size_of(fd) == SIZE && stat("f", &st) == 0 && st.st_size == SIZE);
}

static void locker(int in, int out)
{
	const char *config = getenv("SPLITFS_CONFIG");
	int fd = open("f", O_RDWR | O_CREAT, 0600);

	for (int round = 0; round < 2; round++) {
		changes(fd, round);
		if (config && strstr(config, "strict"))
			CHECK(in_file(snapshot_soon(fd, 1 + (unsigned)round), fd));
		unlocks(fd);
		CHECK(fsync(fd) == 0);
	}
	be_asked(out, messages, sizeof(messages) / sizeof(messages[0]));
	alarm(SECONDS);
	hear(in);
	looks(fd);
	changes(fd, 2);
	CHECK(ftruncate(fd, SIZE / 2) == 0 && ftruncate(fd, SIZE) == 0);
	looks(fd);
	tell(out);
	_exit(0);
}

int main(void)
{
	const struct asked a = asked_fork(locker);
	const int sent = answer(&a, a.from, SECONDS * 1000, NULL);

	CHECK(status_of(a.pid) == 0);
	asked_end(&a);
	if (sent > MOST) {
		fprintf(stderr, "%d messages for %d looks\n", sent, 4 * LOOKS);
		return 1;
	}
	return 0;
}
