/* SPDX-License-Identifier: Apache-2.0 */
/* A new program in this process or in a new one: it knows nothing of us, so everything is true before it starts. */
#include "preload.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void prepare(void)
{
	if (!sfs_active())
		return;
	pl_share();
	sfs_exec_prepare();
}

WRAPPER int w_execve(const char *path, char *const argv[], char *const envp[])
{
	prepare();
	return REAL(execve)(path, argv, envp);
}
EXPORT(execve, w_execve);

WRAPPER int w_execv(const char *path, char *const argv[])
{
	prepare();
	return REAL(execv)(path, argv);
}
EXPORT(execv, w_execv);

WRAPPER int w_execvp(const char *file, char *const argv[])
{
	prepare();
	return REAL(execvp)(file, argv);
}
EXPORT(execvp, w_execvp);

WRAPPER int w_execvpe(const char *file, char *const argv[], char *const envp[])
{
	prepare();
	return REAL(execvpe)(file, argv, envp);
}
EXPORT(execvpe, w_execvpe);

WRAPPER int w_fexecve(int fd, char *const argv[], char *const envp[])
{
	prepare();
	return REAL(fexecve)(fd, argv, envp);
}
EXPORT(fexecve, w_fexecve);

WRAPPER int w_execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	prepare();
	return REAL(execveat)(dirfd, path, argv, envp, flags);
}
EXPORT(execveat, w_execveat);

/* Number of arguments before the terminating NULL, which is one more of them in ap. */
static size_t count_args(va_list ap)
{
	size_t n = 0;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/* The list of arguments becomes a vector on the stack, as in the C library: exec is called where nothing may be allocated. */
#define LIST_TO_VECTOR(arg, argv)                                                                                              \
	va_list ap_;                                                                                                           \
	size_t n_ = 0;                                                                                                         \
	if (arg) {                                                                                                             \
		va_start(ap_, arg);                                                                                            \
		n_ = 1 + count_args(ap_);                                                                                      \
		va_end(ap_);                                                                                                   \
	}                                                                                                                      \
	char *argv[n_ + 1];                                                                                                    \
	argv[0] = (char *)arg;                                                                                                 \
	va_start(ap_, arg);                                                                                                    \
	for (size_t i_ = 1; i_ <= n_; i_++)                                                                                    \
	argv[i_] = va_arg(ap_, char *)

WRAPPER int w_execl(const char *path, const char *arg, ...)
{
	LIST_TO_VECTOR(arg, argv);
	va_end(ap_);
	return w_execv(path, argv);
}
EXPORT(execl, w_execl);

WRAPPER int w_execlp(const char *file, const char *arg, ...)
{
	LIST_TO_VECTOR(arg, argv);
	va_end(ap_);
	return w_execvp(file, argv);
}
EXPORT(execlp, w_execlp);

/* The environment follows the terminating NULL. */
WRAPPER int w_execle(const char *path, const char *arg, ...)
{
	LIST_TO_VECTOR(arg, argv);
	char **envp = va_arg(ap_, char **);

	va_end(ap_);
	return w_execve(path, argv, envp);
}
EXPORT(execle, w_execle);

/* The child makes its calls inside the C library, in the parent's memory: nothing of ours runs there. */
WRAPPER int w_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	prepare();
	return REAL(posix_spawn)(pid, path, actions, attr, argv, envp);
}
EXPORT(posix_spawn, w_posix_spawn);

WRAPPER int w_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	prepare();
	return REAL(posix_spawnp)(pid, file, actions, attr, argv, envp);
}
EXPORT(posix_spawnp, w_posix_spawnp);

WRAPPER int w_system(const char *command)
{
	prepare();
	return REAL(system)(command);
}
EXPORT(system, w_system);

WRAPPER FILE *w_popen(const char *command, const char *mode)
{
	prepare();
	return REAL(popen)(command, mode);
}
EXPORT(popen, w_popen);
