/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's questions about opens (listener.c) between two agents of a volume. Whoever starts agents keeps the fanotify group,
 * so that opens wait while there is no agent instead of going on as if nobody had asked for more, and the memory below, in which an
 * agent notes which questions it has read. The kernel takes an answer to such a question from any process that has the
 * group, by the number that the file's descriptor had in the agent that has died.
 *
 * One question can be missing in the memory: the one that the kernel was handing to the agent when it was killed. Who
 * asked it is not known, so it is let go on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"

#define MAGIC 0x31657461u /* of this layout */
#define SLOTS 65536u	  /* a question whose descriptor has a higher number is not noted */
#define MORE  4096u	  /* so many more descriptors at most an agent makes while it waits for the next question */

struct gate {
	uint32_t magic;
	uint32_t most;	     /* the highest number of a descriptor that came with a question, and one */
	int32_t asks[SLOTS]; /* by the descriptor's number: the thread that waits; 0: nobody */
};

static int attach(struct outsiders *o, int fd)
{
	struct gate *g;
	struct stat st;

	if (fstat(fd, &st) < 0 || (st.st_size < (off_t)sizeof(*g) && ftruncate(fd, sizeof(*g)) < 0))
		return -errno;
	g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (g == MAP_FAILED)
		return -errno;
	if (g->magic != MAGIC) {
		memset(g->asks, 0, sizeof(g->asks));
		g->most = 0;
		g->magic = MAGIC;
	}
	o->gate = g;
	return 0;
}

static void answer(const struct outsiders *o, uint32_t fd)
{
	const struct fanotify_response r = {.fd = (int)fd, .response = FAN_ALLOW};

	if (write(o->opens_fd, &r, sizeof(r)) < 0)
		errno = 0; /* there is no such question */
}

/* It is let go on: its number is one of ours. */
static void forget(const struct outsiders *o, uint32_t fd)
{
	answer(o, fd);
	gate_answered(o, (int)fd);
}

/*
 * What the agent before us has read and not answered. Until it is answered no descriptor of ours may have its number: an answer counts for the
 * oldest question of that number. Those that are noted get one that stands for the file, which nobody knows any more.
 */
static int take_over(struct outsiders *o)
{
	const struct gate *g = o->gate;
	const uint32_t noted = g->most < SLOTS ? g->most : SLOTS;
	int none = memfd_create("not-known", MFD_CLOEXEC);

	if (none < 0)
		return -errno;
	o->left = calloc(noted + 1, sizeof(*o->left));
	if (!o->left) {
		close(none);
		return -ENOMEM;
	}
	for (uint32_t fd = 0; fd < g->most + MORE; fd++) {
		const int tid = fd < noted ? g->asks[fd] : 0;

		if (!tid) {
			answer(o, fd);
			continue;
		}
		if ((uint32_t)none == fd) {
			none = fcntl(none, F_DUPFD_CLOEXEC, none + 1); /* this one stays */
		} else if (fcntl((int)fd, F_GETFD) >= 0 || dup3(none, (int)fd, O_CLOEXEC) < 0) {
			forget(o, fd);
			continue;
		}
		o->left[o->nleft++] = (struct question){.fd = (int)fd, .tid = tid};
	}
	drop_fd(&none);
	return 0;
}

int gate_open(struct agent *a)
{
	const int fd = a->config->gate_fd;
	struct outsiders *o = &a->outsiders;
	int flags, err;

	if (!fd)
		return 0;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	o->opens_fd = fd;
	/* Its marks of single files stay until theirs is asked for: what is opened before our clients are back is not to be missed. */
	o->strange_until = agent_now() + STRANGE_MS;
	err = attach(o, fd + 1);
	return err ? err : take_over(o);
}

void gate_ask_again(struct agent *a)
{
	struct outsiders *o = &a->outsiders;

	for (uint32_t i = 0; i < o->nleft; i++) {
		o->left[i].pid = (int)sfs_process_number(o->left[i].tid, "Tgid");
		listener_ask_look(a, &o->left[i]);
	}
	o->nleft = 0;
}

void gate_note(const struct outsiders *o, int fd, int tid)
{
	struct gate *g = o->gate;

	if (!g)
		return;
	if ((uint32_t)fd < SLOTS)
		__atomic_store_n(&g->asks[fd], tid, __ATOMIC_RELEASE);
	if ((uint32_t)fd >= g->most)
		__atomic_store_n(&g->most, (uint32_t)fd + 1, __ATOMIC_RELEASE);
}

void gate_answered(const struct outsiders *o, int fd)
{
	if (o->gate && (uint32_t)fd < SLOTS)
		__atomic_store_n(&o->gate->asks[fd], 0, __ATOMIC_RELEASE);
}

void gate_close(struct outsiders *o)
{
	if (o->gate)
		munmap(o->gate, sizeof(*o->gate));
	o->gate = NULL;
	free(o->left);
	o->left = NULL;
}
