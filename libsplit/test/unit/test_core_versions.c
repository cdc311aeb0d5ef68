/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library and agents of other versions of the protocol: one that knows of no ranges, one that is newer and still speaks ours, and ones
 * that have none in common with us, which are said to be so, and without which strict opens nothing for writing.
 */
#include "harness.h"
#include "unit/core_agent.h"
#include "lease/volume.h"

#include <sys/wait.h>

struct trial {
	const char *mode;
	struct sfs_versions agent;
	uint32_t met;	  /* 0: none */
	const char *said; /* on standard error */
};

static const struct trial trials[] = {
	{"strict", {1, 1}, 1, NULL},
	{"strict", {1, 2}, 2, NULL},
	{"posix", {2, 3}, 2, NULL},
	{"sync", {2, 3}, 2, NULL},
	{"strict", {2, 3}, 2, NULL},
	{"strict",
	 {3, 4},
	 0,
	 "speaks version 3 to 4 of the protocol and this library 1 to 2, which is too old: start the pod anew"},
	{"strict", {3, 3}, 0, "speaks version 3 of the protocol"},
	{"sync", {3, 4}, 0, "files are served by the kernel"},
	{"posix", {3, 4}, 0, NULL},
};

static void served(const struct trial *t, struct core_agent *a)
{
	char name[300], back[6] = "";
	struct stat st;
	int fd;

	snprintf(name, sizeof(name), "%s/f", a->root);
	fd = sfs_openat(AT_FDCWD, name, O_RDWR | O_CREAT, 0600);
	if (!t->met && strcmp(t->mode, "strict") == 0) {
		CHECK_EQ(fd, -EIO);
		CHECK_EQ(sfs_openat(AT_FDCWD, name, O_RDWR | O_CREAT, 0600), -EIO);
		CHECK_EQ(__atomic_load_n(&a->hellos, __ATOMIC_RELAXED), 1); /* it is not asked all the time */
		return;
	}
	CHECK(fd >= 0);
	for (int i = 0; i < 100; i++) {
		const ssize_t n = sfs_write(fd, "hello", 5, -1);

		CHECK(n == 5 || (n == SFS_PASS && write(fd, "hello", 5) == 5));
	}
	CHECK(pread(fd, back, 5, 0) >= 0);
	CHECK(sfs_close(fd) == 0 || close(fd) == 0);
	CHECK_EQ(stat(name, &st), 0);
	CHECK_EQ(st.st_size, 500);
	CHECK_EQ(sfs.volumes[0].agent.state, t->met ? VOL_READY : VOL_LOST);
	if (t->met)
		CHECK_EQ(sfs.volumes[0].agent.version, t->met);
}

static void run(const struct trial *t)
{
	struct core_agent a = {.speaks = t->agent};
	char text[2000] = "";
	int p[2], status;
	pid_t pid;

	CHECK_EQ(pipe(p), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		const int err = dup(2);

		dup2(p[1], 2);
		core_agent_start(&a, t->mode);
		served(t, &a);
		core_agent_remove(&a);
		dup2(err, 2);
		_exit(0);
	}
	close(p[1]);
	for (size_t n = 0, got = 1; got > 0; n += got) {
		const ssize_t r = read(p[0], text + n, sizeof(text) - 1 - n);

		got = r > 0 ? (size_t)r : 0;
	}
	close(p[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		FAIL("%s, agent %u to %u: status 0x%x: %s", t->mode, t->agent.oldest, t->agent.newest, status, text);
	if (t->said ? !strstr(text, t->said) : text[0])
		FAIL("%s, agent %u to %u: it says \"%s\"", t->mode, t->agent.oldest, t->agent.newest, text);
}

int main(void)
{
	CHECK_EQ(SFS_PROTO_OLDEST, 1);
	CHECK_EQ(SFS_PROTO_NEWEST, 2);
	for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++)
		run(&trials[i]);
	return 0;
}
