/* SPDX-License-Identifier: Apache-2.0 */
/* The constructor and the destructor. */
#include "base/lock.h"
#include "stream.h"

extern char **environ __attribute__((weak));

#define ENV_MAX 65536

/* The environment that the kernel gave the process, where the C library does not pass it to constructors. */
static char **environment_from_proc(void)
{
	static char text[ENV_MAX];
	static char *list[1024];
	int fd = sys_openat(AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC, 0);
	size_t len = 0, count = 0;

	if (fd < 0)
		return NULL;
	for (ssize_t n; len < sizeof(text) - 1 && (n = sys_read(fd, text + len, sizeof(text) - 1 - len)) > 0;)
		len += (size_t)n;
	sys_close(fd);
	for (size_t i = 0; i < len && count < sizeof(list) / sizeof(list[0]) - 1; count++) {
		list[count] = text + i;
		while (text[i])
			i++;
		i++;
	}
	list[count] = NULL;
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

__attribute__((constructor)) static void start(int argc, char **argv, char **envp)
{
	pl_idle = !sfs_init(environment(argc, argv, envp));
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
