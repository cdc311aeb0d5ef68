/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gate.h"
#include "format/identity.h"

#define TASKS	   4096u
#define VIOLATIONS 20u
#define LINE	   256u
/* The library's descriptors stand above the program's limit of them (fds/own.c). This is the limit that programs get here. */
#define PRIVATE_FROM 1024u
#define TRACE_EVENTS (PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)
#define TRACE_OPTS   (PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEEXEC | TRACE_EVENTS)

/* A thread. Its process's library lies at [text, text_end); both are 0 until it is found, and again after exec. */
struct task {
	pid_t tid;
	uint64_t text, text_end;
	const struct gate_call *call; /* that it is in, when its result is wanted */
	/* A read of the library's that has met staged bytes: that file, and what to say unless it reads again (files/unheld.c). */
	ino_t suspect;
	char what[LINE];
};

static struct task tasks[TASKS];
static uint64_t calls[GATE_KINDS], bytes[GATE_KINDS], by_library, violations;
static char violation[VIOLATIONS][LINE];

static const char usage[] =
	"Usage: gate --root ROOT --report FILE -- COMMAND [ARGUMENTS]\n"
	"\n"
	"Runs COMMAND and stops it before each system call that moves data of a file of ROOT's file system and is not made by\n"
	"libsplit.so on a descriptor of its own. When a log of the volume ROOT has staged bytes of that file at that moment, "
	"that is a violation. "
	"The\n"
	"report is one JSON object: calls and bytes that went to the kernel, calls of the library, violations.\n"
	"\n"
	"Exit status: that of COMMAND (128 + N for signal N), 2 for wrong usage.\n";

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("gate: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

/* ---- what was seen ---- */

static void note_violation(const char *what)
{
	if (violations < VIOLATIONS)
		snprintf(violation[violations], LINE, "%s", what);
	violations++;
}

/* The thread does something else than reading the file again, or has ended. */
static void settle_suspect(struct task *t)
{
	if (t->suspect)
		note_violation(t->what);
	t->suspect = 0;
}

/* ---- who is stopped ---- */

static struct task *task_of(pid_t tid)
{
	unsigned i = (unsigned)tid % TASKS;

	for (unsigned n = 0; n < TASKS && tasks[i].tid && tasks[i].tid != tid; n++)
		i = (i + 1) % TASKS;
	if (tasks[i].tid && tasks[i].tid != tid)
		die("more than %u threads", TASKS);
	tasks[i].tid = tid;
	return &tasks[i];
}

/* The entry stays: numbers come again, and a chain of entries must not be cut. */
static void task_reset(pid_t tid)
{
	settle_suspect(task_of(tid));
	*task_of(tid) = (struct task){.tid = tid};
}

static void find_library(struct task *t)
{
	char path[64], line[512];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", t->tid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		char may[8];

		if (sscanf(line, "%lx-%lx %7s", &from, &to, may) == 3 && may[2] == 'x' && strstr(line, "/libsplit.so")) {
			t->text = from;
			t->text_end = to;
		}
	}
	if (maps)
		fclose(maps);
}

static bool in_library(struct task *t, uint64_t ip)
{
	if (!t->text_end) /* not there, or not yet: the dynamic linker reads before it maps */
		find_library(t);
	return ip >= t->text && ip < t->text_end;
}

/* ---- which file ---- */

static bool of_volume(const char *path, struct stat *st)
{
	return stat(path, st) == 0 && S_ISREG(st->st_mode) && st->st_dev == gate_device();
}

/* Where the calling thread would find the path that it passes. */
static bool path_of(const struct task *t, const struct gate_call *c, const uint64_t arg[6], char path[], size_t room)
{
	char name[2048];
	struct iovec here = {name, sizeof(name) - 1}, there = {(void *)arg[c->path], sizeof(name) - 1};
	ssize_t n = process_vm_readv(t->tid, &here, 1, &there, 1, 0);

	if (n < 0) { /* the page behind the string's may be missing */
		there.iov_len = here.iov_len = 4096 - (arg[c->path] & 4095);
		if (here.iov_len > sizeof(name) - 1)
			return false;
		n = process_vm_readv(t->tid, &here, 1, &there, 1, 0);
	}
	if (n <= 0)
		return false;
	name[n] = 0;
	if (name[0] == '/')
		n = snprintf(path, room, "/proc/%d/root%s", t->tid, name);
	else if (c->path == 0 || (int)arg[0] == AT_FDCWD)
		n = snprintf(path, room, "/proc/%d/cwd/%s", t->tid, name);
	else
		n = snprintf(path, room, "/proc/%d/fd/%d/%s", t->tid, (int)arg[0], name);
	return (size_t)n < room;
}

/* Bytes staged for the file with this name. */
static uint64_t staged(const char *path, const struct stat *st)
{
	uint32_t gen = 0;
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	const int err = fd < 0 ? -errno : sfs_generation(fd, &gen);

	if (fd >= 0)
		close(fd);
	if (err)
		die("look at %s: %s", path, strerror(-err));
	return gate_staged(st->st_ino, gen);
}

static void describe(const struct task *t, const struct gate_call *c, const char *path, uint64_t n, char what[LINE])
{
	char name[512] = "?", comm[32] = "?", proc[64];
	FILE *f;

	snprintf(proc, sizeof(proc), "/proc/%d/comm", t->tid);
	f = fopen(proc, "re");
	if (f) {
		if (fgets(comm, sizeof(comm), f))
			comm[strcspn(comm, "\n")] = 0;
		fclose(f);
	}
	if (readlink(path, name, sizeof(name) - 1) < 0)
		snprintf(name, sizeof(name), "%.500s", path);
	snprintf(what, LINE, "%s: %s of %.150s with %llu bytes staged", comm, c->name, name, (unsigned long long)n);
}

/* Before a call on a file that has n bytes staged. */
static void judge(struct task *t, const struct gate_call *c, const char *path, const struct stat *st, uint64_t n, bool library)
{
	const bool may_repeat = library && c->kind == GATE_READ;

	if (t->suspect == st->st_ino && may_repeat)
		t->suspect = 0;
	settle_suspect(t);
	if (n == 0)
		return;
	describe(t, c, path, n, t->what);
	t->suspect = st->st_ino;
	if (!may_repeat)
		settle_suspect(t);
}

/* A call that moves data is about to be made. Should the thread be stopped again when it is done? */
static bool look(struct task *t, const struct gate_call *c, const struct user_regs_struct *r)
{
	const uint64_t arg[6] = {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9};
	bool ours = false;

	if (!gate_concerns(c, arg))
		return false;
	for (int i = 0; i < 3; i++) {
		char path[4096];
		struct stat st;

		if (i < 2 ? c->fd[i] < 0 : c->path < 0)
			continue;
		if (i < 2)
			snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->tid, (int)arg[c->fd[i]]);
		else if (!path_of(t, c, arg, path, sizeof(path)))
			continue;
		if (!of_volume(path, &st))
			continue;
		/* On a descriptor of its own: it moves staged bytes, or reads around them. On the program's it passes a call on. */
		if (i < 2 && arg[c->fd[i]] >= PRIVATE_FROM && in_library(t, r->rip)) {
			by_library++;
			return false;
		}
		ours = true;
		judge(t, c, path, &st, staged(path, &st), in_library(t, r->rip));
	}
	if (ours)
		t->call = c;
	return ours;
}

static void result(struct task *t, const struct user_regs_struct *r)
{
	const struct gate_call *c = t->call;

	t->call = NULL;
	calls[c->kind]++;
	if ((int64_t)r->rax < 0 && (int64_t)r->rax >= -4095)
		return;
	if (c->kind == GATE_MAP)
		bytes[c->kind] += r->rsi;
	else if (c->kind != GATE_CUT && c->nr != SYS_ioctl)
		bytes[c->kind] += r->rax;
}

/* ---- the loop ---- */

static void go_on(pid_t tid, int how, int sig)
{
	/* ESRCH: killed meanwhile, and wait will say so. */
	if (ptrace(how, tid, 0, (void *)(long)sig) < 0 && errno != ESRCH)
		die("let %d go on: %s", tid, strerror(errno));
}

static void stopped(pid_t tid, int status)
{
	const int sig = WSTOPSIG(status), event = status >> 16;
	struct task *t = task_of(tid);
	struct user_regs_struct r;

	if (event == PTRACE_EVENT_SECCOMP) {
		const struct gate_call *c;

		if (ptrace(PTRACE_GETREGS, tid, 0, &r) < 0)
			return; /* killed */
		c = gate_find((long)r.orig_rax);
		go_on(tid, c && look(t, c, &r) ? PTRACE_SYSCALL : PTRACE_CONT, 0);
	} else if (sig == (SIGTRAP | 0x80)) {
		if (ptrace(PTRACE_GETREGS, tid, 0, &r) < 0)
			return;
		if (t->call)
			result(t, &r);
		go_on(tid, PTRACE_CONT, 0);
	} else if (event == PTRACE_EVENT_STOP && sig != SIGTRAP) {
		go_on(tid, PTRACE_LISTEN, 0); /* SIGSTOP and the like stop it as they would without us */
	} else if (event) {
		if (event == PTRACE_EVENT_EXEC)
			task_reset(tid);
		go_on(tid, PTRACE_CONT, 0);
	} else {
		go_on(tid, t->call ? PTRACE_SYSCALL : PTRACE_CONT, sig);
	}
}

static pid_t start(char **command)
{
	struct rlimit files;
	int ready[2];
	char c = 0;
	pid_t pid;

	if (pipe(ready) < 0)
		die("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		int err;

		close(ready[1]);
		if (read(ready[0], &c, 1) != 1)
			_exit(1);
		close(ready[0]);
		if (getrlimit(RLIMIT_NOFILE, &files) < 0)
			die("read the limit of open files: %s", strerror(errno));
		files.rlim_cur = PRIVATE_FROM;
		if (setrlimit(RLIMIT_NOFILE, &files) < 0)
			die("set the limit of open files to %u: %s", PRIVATE_FROM, strerror(errno));
		err = gate_install();
		if (err)
			die("install the filter of system calls: %s (root is needed)", strerror(-err));
		execvp(command[0], command);
		die("run %s: %s", command[0], strerror(errno));
	}
	if (ptrace(PTRACE_SEIZE, pid, 0, TRACE_OPTS) < 0)
		die("trace %s: %s", command[0], strerror(errno));
	close(ready[0]);
	if (write(ready[1], &c, 1) != 1)
		die("start %s: %s", command[0], strerror(errno));
	close(ready[1]);
	return pid;
}

static void report(const char *path)
{
	static const char *const kinds[GATE_KINDS] = {"read", "write", "copy", "map", "cut"};
	FILE *f = fopen(path, "we");

	if (!f)
		die("write %s: %s", path, strerror(errno));
	fputc('{', f);
	for (int k = 0; k < GATE_KINDS; k++)
		fprintf(f, "\"%s_calls\":%llu,\"%s_bytes\":%llu,", kinds[k], (unsigned long long)calls[k], kinds[k],
			(unsigned long long)bytes[k]);
	fprintf(f, "\"library_calls\":%llu,\"violations\":%llu,\"first\":[", (unsigned long long)by_library,
		(unsigned long long)violations);
	for (unsigned i = 0; i < violations && i < VIOLATIONS; i++) {
		fputs(i ? ",\"" : "\"", f);
		for (const char *p = violation[i]; *p; p++)
			fputc(*p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? '?' : *p, f);
		fputc('"', f);
	}
	fputs("]}\n", f);
	if (fclose(f))
		die("write %s: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"root", required_argument, NULL, 'r'},
						{"report", required_argument, NULL, 'o'},
						{0}};
	const char *root = NULL, *out = NULL;
	int o, status, code = -1;
	pid_t first, tid;

	while ((o = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (o == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (o == 'r')
			root = optarg;
		else if (o == 'o')
			out = optarg;
		else
			break;
	}
	if (o != -1 || !root || !out || optind == argc) {
		fputs(usage, stderr);
		return 2;
	}
	if (gate_open_volume(root))
		return 1;
	first = start(argv + optind);
	/* What is left when the command has ended is killed with us. */
	while (code < 0 && ((tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR)) {
		if (tid <= 0)
			continue;
		if (WIFSTOPPED(status))
			stopped(tid, status);
		else
			task_reset(tid);
		if (tid == first && WIFEXITED(status))
			code = WEXITSTATUS(status);
		if (tid == first && WIFSIGNALED(status))
			code = 128 + WTERMSIG(status);
	}
	for (unsigned i = 0; i < TASKS; i++)
		settle_suspect(&tasks[i]);
	report(out);
	return code < 0 ? 1 : code;
}
