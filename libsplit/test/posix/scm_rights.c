/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor sent through a socket, by name and by number: both sides have one offset and one file. */
#include "check.h"

#include <sys/socket.h>

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static int by_number;

static void send_fd(int sock, int fd)
{
	union control c = {0};
	struct iovec iov = {"x", 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};

	c.head.cmsg_level = SOL_SOCKET;
	c.head.cmsg_type = SCM_RIGHTS;
	c.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.head), &fd, sizeof(int));
	CHECK((by_number ? syscall(SYS_sendmsg, sock, &m, 0L) : sendmsg(sock, &m, 0)) == 1);
}

static int receive_fd(int sock)
{
	union control c;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	int fd;

	CHECK((by_number ? syscall(SYS_recvmsg, sock, &m, (long)MSG_CMSG_CLOEXEC) : recvmsg(sock, &m, MSG_CMSG_CLOEXEC)) == 1);
	CHECK(CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

static void pass_on(void)
{
	int pair[2], fd;
	pid_t pid;
	char c;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	if ((pid = fork()) == 0) {
		fd = receive_fd(pair[1]);
		CHECK(size_of(fd) == 20000 && lseek(fd, 0, SEEK_CUR) == 123);
		expect(fd, 1, 0, 20000);
		CHECK(lseek(fd, 0, SEEK_END) == 20000 && write(fd, "child", 5) == 5 && write(pair[1], "x", 1) == 1);
		exit(0);
	}
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	put(fd, 1, 0, 20000);
	CHECK(lseek(fd, 123, SEEK_SET) == 123);
	send_fd(pair[0], fd);
	CHECK(read(pair[0], &c, 1) == 1 && status_of(pid) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 20005 && write(fd, "parent", 6) == 6 && size_of(fd) == 20011);
	expect(fd, 1, 0, 20000);
	CHECK(close(fd) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
}

/* Bad addresses in a message are an error of the call. */
static void bad_control(void)
{
	struct iovec iov = {"x", 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = (void *)-1l, .msg_controllen = 64};
	const struct msghdr *volatile nowhere = (const struct msghdr *)4096;
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	FAILS(sendmsg(pair[0], &m, 0), EFAULT);
	FAILS(syscall(SYS_sendmsg, pair[0], &m, 0l), EFAULT);
	FAILS(sendmsg(pair[0], nowhere, 0), EFAULT);
	CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

int main(void)
{
	bad_control();
	pass_on();
	by_number = 1;
	pass_on();
	return 0;
}
