/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the wrappers' policies (preload/preload.h) know more than they ask the core: the linker turns calls of do_NAME into __wrap_do_NAME, and
 * __real_do_NAME is the policy itself.
 */
#include "core.h"
#include "kind.h"
#include "preload/preload.h"

extern char **environ __attribute__((weak));

uint32_t adv_sending, adv_asynchronous;

#define AROUND(policy, flag)                                                                                                   \
	pl_policy __real_do_##policy, __wrap_do_##policy;                                                                      \
	long __wrap_do_##policy(const struct request *q)                                                                       \
	{                                                                                                                      \
		long r;                                                                                                        \
                                                                                                                               \
		__atomic_add_fetch(&(flag), 1, __ATOMIC_RELAXED);                                                              \
		r = __real_do_##policy(q);                                                                                     \
		__atomic_sub_fetch(&(flag), 1, __ATOMIC_RELAXED);                                                              \
		return r;                                                                                                      \
	}
AROUND(sendmsg, adv_sending)
AROUND(aio, adv_asynchronous)
AROUND(lio_listio, adv_asynchronous)
AROUND(io_submit, adv_asynchronous)

pl_policy __real_do_rename, __wrap_do_rename, __real_do_mmap, __wrap_do_mmap, __real_do_true_then, __wrap_do_true_then;
pl_policy __real_do_exec, __wrap_do_exec, __real_do_exit, __wrap_do_exit;

bool adv_abrupt;

long __wrap_do_rename(const struct request *q)
{
	struct stat st;
	const bool ours = adv_name_below(pl_fd(q), pl_path(q)) &&
			  sys_fstatat(pl_fd(q), pl_path(q), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
	const struct adv_file *f = ours ? adv_file_find(&st) : NULL;

	ADV_ADD(adv->renames, ours);
	ADV_ADD(adv->renames_unsynced, f && f->unsynced > 0);
	return __real_do_rename(q);
}

long __wrap_do_mmap(const struct request *q)
{
	const bool ours = !(q->a[3] & 0x20 /* MAP_ANONYMOUS */) && sfs_ours(pl_fd(q));

	ADV_ADD(adv->mapped, ours);
	ADV_ADD(adv->mapped_writable, ours && q->a[2] & 2 /* PROT_WRITE */ && q->a[3] & 1 /* MAP_SHARED */);
	return __real_do_mmap(q);
}

/* copy_file_range, sendfile, splice */
long __wrap_do_true_then(const struct request *q)
{
	const unsigned char other = pl_rows[q->call].fd2;
	const bool ours = sfs_ours(pl_fd(q)) || (other && sfs_ours((int)q->a[other - 1]));
	const uint64_t from = adv_cpu();
	const long r = __real_do_true_then(q);

	if (ours && r >= 0)
		adv_add(&adv->copied, (uint64_t)r, adv_cpu() - from);
	return r;
}

long __wrap_do_exit(const struct request *q)
{
	adv_abrupt = q->call != PL_exit;
	return __real_do_exit(q);
}

/* ---- programs that are started ---- */

static void note(int dirfd, const char *path)
{
	const enum adv_program why = adv_kind(dirfd, path);

	for (int i = 0; why != ADV_NO_PROGRAM && i < ADV_PROGRAMS; i++) {
		struct adv_program_seen *p = &adv->programs[i];
		uint32_t unset = 0;
		size_t n = 0;

		if (__atomic_compare_exchange_n(&p->state, &unset, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			p->why = why;
			for (; path[n] && n + 1 < sizeof(p->path); n++)
				p->path[n] = path[n];
			p->path[n] = 0;
			__atomic_store_n(&p->state, 2, __ATOMIC_RELEASE);
		} else if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == 2) {
			while (path[n] && path[n] == p->path[n])
				n++;
			if (n + 1 < sizeof(p->path) && path[n] != p->path[n])
				continue;
		} else {
			continue;
		}
		ADV_ADD(p->times, 1);
		return;
	}
}

/* As execvp(3) finds it. */
static void note_searched(const char *name)
{
	const char *list = "/usr/local/bin:/usr/bin:/bin";
	char path[4096];

	for (size_t i = 0; name[i]; i++)
		if (name[i] == '/') {
			note(AT_FDCWD, name);
			return;
		}
	for (char **e = environ; e && *e; e++)
		if ((*e)[0] == 'P' && (*e)[1] == 'A' && (*e)[2] == 'T' && (*e)[3] == 'H' && (*e)[4] == '=')
			list = *e + 5;
	while (*list) {
		size_t n = 0;

		for (; *list && *list != ':' && n + 1 < sizeof(path); list++)
			path[n++] = *list;
		list += *list == ':';
		if (n + 1 < sizeof(path))
			path[n++] = '/';
		for (size_t i = 0; name[i] && n + 1 < sizeof(path); i++)
			path[n++] = name[i];
		path[n] = 0;
		if (sys_call4(SYS_faccessat, AT_FDCWD, (long)path, 1 /* X_OK */, 0) == 0) {
			note(AT_FDCWD, path);
			return;
		}
	}
}

long __wrap_do_exec(const struct request *q)
{
	switch (q->call) {
	case PL_execve:
	case PL_execv:
		note(AT_FDCWD, (const char *)q->a[0]);
		break;
	case PL_execvp:
	case PL_execvpe:
		note_searched((const char *)q->a[0]);
		break;
	case PL_posix_spawn:
		note(AT_FDCWD, (const char *)q->a[1]);
		break;
	case PL_posix_spawnp:
		note_searched((const char *)q->a[1]);
		break;
	case PL_execveat:
		note((int)q->a[0], (const char *)q->a[1]);
		break;
	default: /* a shell, which comes by here again; a descriptor */
		break;
	}
	return __real_do_exec(q);
}
