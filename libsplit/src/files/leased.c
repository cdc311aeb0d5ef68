/* SPDX-License-Identifier: Apache-2.0 */
#include "files/leased.h"

#include "base/sys.h"
#include "files/scarce.h"

bool sfs_has_lease(int fd)
{
	const int type = sys_fcntl(fd, F_GETLEASE, 0);

	return type == F_RDLCK || type == F_WRLCK;
}

static bool any_lease(const struct sfs_inode *in)
{
	for (int fd = sfs_inode_open_at(in, 0); fd >= 0; fd = sfs_inode_open_at(in, fd + 1))
		if (sfs_has_lease(fd))
			return true;
	return false;
}

static bool any_writable(const struct sfs_inode *in)
{
	for (int fd = sfs_inode_open_at(in, 0); fd >= 0; fd = sfs_inode_open_at(in, fd + 1)) {
		const struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd > SFS_PRIVATE && sfs_may_write(ofd->flags))
			return true;
	}
	return false;
}

/* The agent's hold of who has mapped the file stays: the mapping looks at what the kernel has. */
static void release(struct sfs_inode *in)
{
	if (!sfs_server_is_kernel(&in->server) && in->grant.state != GRANT_NONE)
		sfs_agent_release(in->vol, &in->grant, in->ino, in->gen);
	sfs_life_again(&in->life);
}

void sfs_lease_ask(struct sfs_inode *in)
{
	sfs_flights_void(in);
	sfs_inode_times(in);
	if (in->fd >= 0 && !sfs_may_be_locked(in)) {
		sfs_inode_close_own(in);
		in->locked = false;
	}
	release(in);
	sfs_server_lease(&in->server);
	in->kdirty = true;
	in->leasing++;
}

void sfs_lease_asked(struct sfs_inode *in)
{
	in->leasing -= in->leasing > 0;
}

void sfs_lease_look(struct sfs_inode *in, int fd)
{
	if (likely(!sfs_server_is_leased(&in->server)) || in->leasing > 0 || sfs_has_lease(fd) || any_lease(in))
		return;
	sfs_server_unlease(&in->server);
	release(in);
}

void sfs_inode_narrow(struct sfs_inode *in)
{
	if (in->fd >= 0 && in->writable && in->by_kernel == 0 && in->pins.total == 0 && !in->flights.used &&
	    !any_writable(in) && !sfs_may_be_locked(in))
		sfs_inode_close_own(in);
}
