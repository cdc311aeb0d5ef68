/* SPDX-License-Identifier: Apache-2.0 */
/* The constructor and the destructor. */
#include <elf.h>
#include <string.h>

#include "base/lock.h"
#include "stream.h"

extern char **environ __attribute__((weak));

/* In a pod: what the environment would say, a variable a line, for programs that are started without it. */
#define CONFIG_FILE "/opt/splitfs/config"
#define CONFIG	    "SPLITFS_CONFIG="
#define TEXT_MAX    65536
#define LIST_MAX    1024

extern unsigned long getauxval(unsigned long type) __attribute__((weak));

/* Variables from a file, with `end` behind each of them; NULL: it can't be read. */
static __attribute__((cold)) char **list_of(int fd, char end)
{
	static char text[TEXT_MAX];
	static char *list[LIST_MAX];
	size_t len = 0, count = 0;

	for (ssize_t n; len < sizeof(text) - 1 && (n = sys_read(fd, text + len, sizeof(text) - 1 - len)) > 0;)
		len += (size_t)n;
	for (size_t i = 0; i < len && count < LIST_MAX - 1; count++) {
		list[count] = text + i;
		while (text[i] && text[i] != end)
			i++;
		text[i++] = 0;
	}
	list[count] = NULL;
	return list;
}

/* The environment that the kernel gave the process, where the C library does not pass it to constructors. */
static __attribute__((cold)) char **environment_from_proc(void)
{
	const int fd = sys_openat(AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC, 0);
	char **list = fd >= 0 ? list_of(fd, 0) : NULL;

	if (fd >= 0)
		sys_close(fd);
	return list;
}

static char **environment(int argc, char **argv, char **envp)
{
	if (&environ && environ)
		return environ;
	/* glibc calls constructors with main's arguments, musl with none: they count only when they fit together. */
	if (argc > 0 && argc < 1 << 20 && argv && envp == argv + argc + 1)
		return envp;
	return environment_from_proc();
}

/* Does the program have rights that whoever started it does not have? Both C libraries have getauxval(). */
static bool has_more_rights(void)
{
	return !getauxval || getauxval(AT_SECURE);
}

/* `trusted`: only what root alone can have written. */
static __attribute__((cold)) char **from_file(bool trusted)
{
	const int fd = sys_openat(AT_FDCWD, CONFIG_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	char **list = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (!trusted || (st.st_uid == 0 && !(st.st_mode & 022))))
		list = list_of(fd, '\n');
	sys_close(fd);
	return list;
}

/*
 * What configures the process: its environment, or the file where that says nothing (`env -i`, sudo). A program with more rights than whoever
 * started it (set-user-ID, file capabilities) goes by the file alone: the other chose its environment.
 */
static char **configuration(int argc, char **argv, char **envp)
{
	const bool more = has_more_rights();
	char **e = more ? NULL : environment(argc, argv, envp), **file;

	for (char **p = e; p && *p; p++)
		if (memcmp(*p, CONFIG, sizeof(CONFIG) - 1) == 0)
			return e;
	file = from_file(more);
	return file ? file : e;
}

/*
 * Does the program call us? Not where we are behind the C library: some library of the program's is linked with us and the program is not, or
 * we came by dlopen(). Its reads and writes go past us there, so we serve nothing.
 */
static bool in_front(void)
{
	const char *const name = "write";
	void *next;

	pl_elf_next(&name, 1, &next);
	return next != NULL;
}

__attribute__((constructor)) static void start(int argc, char **argv, char **envp)
{
	pl_idle = !in_front() || !sfs_init(configuration(argc, argv, envp));
	pl_resolve_early(!pl_idle);
	if (pl_idle)
		return;
	sfs_handlers_none();
	pl_signals_start();
	pl_stdout_start();
	for (int fd = 0; fd <= 2; fd++)
		pl_adopt(fd);
	/* Other processes, with or without the library, may have an inherited standard output too. */
	if (sfs_ours(1) && pl_hand_over(1) < 0)
		pl_release(1);
}

__attribute__((destructor)) static void stop(void)
{
	if (!pl_idle)
		sfs_exit();
}
