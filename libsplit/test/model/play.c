/* SPDX-License-Identifier: Apache-2.0 */
/* Plays a program: its operations one after the other, some of them in a forked process or in a new image, and prints what it sees. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perform.h"

#define END (-1)

static int peer_pid, to_peer, from_peer; /* as long as there is one */

/* The forked process: performs what it is told, one operation at a time. */
static void be_peer(uint64_t seed, int in, int out)
{
	char line[LINE];
	int index;

	while (read(in, &index, sizeof(index)) == sizeof(index) && index != END) {
		struct op op = op_make(seed, index);

		memset(line, 0, sizeof(line));
		perform(&op, index, line);
		if (write(out, line, sizeof(line)) != sizeof(line))
			_exit(9);
	}
	exit(7);
}

static void start_peer(uint64_t seed, char *line)
{
	int there[2], back[2];

	if (peer_pid || pipe(there) < 0 || pipe(back) < 0) {
		strcpy(line, "not now");
		return;
	}
	together = true;
	peer_pid = fork();
	if (peer_pid == 0) {
		close(there[1]);
		close(back[0]);
		be_peer(seed, there[0], back[1]);
	}
	close(there[0]);
	close(back[1]);
	to_peer = there[1];
	from_peer = back[0];
	strcpy(line, peer_pid < 0 ? "no fork" : "forked");
}

static void end_peer(char *line)
{
	int status = 0, end = END;

	if (!peer_pid) {
		strcpy(line, "no peer");
		return;
	}
	if (write(to_peer, &end, sizeof(end)) != sizeof(end) || waitpid(peer_pid, &status, 0) < 0)
		strcpy(line, "lost");
	else
		sprintf(line, "status %x", status);
	close(to_peer);
	close(from_peer);
	peer_pid = 0;
	together = false;
}

static void ask_peer(int index, char *line)
{
	if (write(to_peer, &index, sizeof(index)) != sizeof(index) || read(from_peer, line, LINE) != LINE)
		strcpy(line, "peer died");
}

/* Go on in a new program image, with the open descriptors. */
static void exec_self(struct play *p, int index, char *const argv[], char *line)
{
	char first[16], numbers[SLOTS][16], count[16], seed[24];
	char *args[8 + SLOTS];
	int n = 0;

	if (peer_pid || any_mapped()) {
		strcpy(line, "not now");
		return;
	}
	sprintf(seed, "%llu", (unsigned long long)p->seed);
	sprintf(count, "%d", p->count);
	sprintf(first, "%d", index + 1);
	args[n++] = argv[0];
	args[n++] = "play";
	args[n++] = seed;
	args[n++] = count;
	args[n++] = (char *)(p->only ? p->only : "-");
	args[n++] = first;
	for (int i = 0; i < SLOTS; i++) {
		/* those that close on exec are gone in the new image */
		bool stays = fds[i] >= 0 && fcntl(fds[i], F_GETFD) == 0;

		sprintf(numbers[i], "%d", stays ? fds[i] : -1);
		args[n++] = numbers[i];
	}
	args[n] = NULL;
	dprintf(1, "%5d exec\n", index);
	execv("/proc/self/exe", args);
	sprintf(line, "exec errno %d", errno);
}

/* Indexes to play, or all. */
static bool *read_only(const struct play *p)
{
	bool *wanted = calloc((size_t)p->count, sizeof(*wanted));
	FILE *f = p->only ? fopen(p->only, "r") : NULL;
	int i;

	if (!wanted || (p->only && !f)) {
		fprintf(stderr, "model: cannot read %s\n", p->only);
		exit(2);
	}
	if (!f)
		memset(wanted, 1, (size_t)p->count * sizeof(*wanted));
	while (f && fscanf(f, "%d", &i) == 1)
		if (i >= 0 && i < p->count)
			wanted[i] = true;
	if (f)
		fclose(f);
	return wanted;
}

int play(struct play *p, char *const argv[])
{
	bool *wanted = read_only(p);

	memcpy(fds, p->slots, sizeof(fds));
	for (int i = p->first; i < p->count; i++) {
		struct op op = op_make(p->seed, i);
		char line[LINE] = "";

		if (!wanted[i])
			continue;
		if (op.kind == OP_fork)
			start_peer(p->seed, line);
		else if (op.kind == OP_end_peer)
			end_peer(line);
		else if (op.kind == OP_exec)
			exec_self(p, i, argv, line);
		else if (op.by_peer && peer_pid)
			ask_peer(i, line);
		else
			perform(&op, i, line);
		dprintf(1, "%5d %s\n", i, line);
	}
	if (peer_pid) {
		char line[LINE];

		end_peer(line);
		dprintf(1, "  end %s\n", line);
	}
	return 0; /* without closing: that must not matter */
}
