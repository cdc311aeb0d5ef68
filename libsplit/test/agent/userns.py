# SPDX-License-Identifier: Apache-2.0
"""Runs a program as a container of a pod with hostUsers: false does.

Usage: userns.py FIRST USER [SOURCE TARGET] -- PROGRAM ARGUMENT...
Its users 0 to 65535 are FIRST and the following of the machine, and SOURCE is mounted at TARGET so that who is USER in there owns what
belongs to USER on SOURCE (an idmapped mount, as container runtimes make them of the volumes of such pods). Without SOURCE nothing is
mounted. Exits 77 where the kernel or the file system of SOURCE has no such mounts.
"""
import ctypes
import errno
import os
import signal
import struct
import sys

SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 1, os.O_CLOEXEC, 4
AT_FDCWD, AT_EMPTY_PATH, MOUNT_ATTR_IDMAP = -100, 0x1000, 0x100000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def unshare(flags):
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


def mount_mapped(source, target, namespace):
    unshare(CLONE_NEWNS)
    if libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount")
    tree = call(SYS_OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    attr = ctypes.create_string_buffer(struct.pack("=QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace), 32)
    try:
        call(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attr, ctypes.c_size_t(32))
    except OSError as e:
        if e.errno in (errno.ENOSYS, errno.EINVAL):
            print("this kernel or file system has no idmapped mounts", file=sys.stderr)
            sys.exit(77)
        raise
    call(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH)


def namespace_of(first):
    """A user namespace, by a process in it that ends with this one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        unshare(CLONE_NEWUSER)
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    for kind in "uid", "gid":
        with open(f"/proc/{pid}/{kind}_map", "w") as f:
            f.write(f"0 {first} 65536")
    fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return fd


def main():
    split = sys.argv.index("--")
    first, user, *mount = sys.argv[1:split]
    namespace = namespace_of(int(first))
    if mount:
        mount_mapped(*mount, namespace)
    if libc.setns(namespace, CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "setns")
    os.setgroups([])
    os.setresgid(*3 * [int(user)])
    os.setresuid(*3 * [int(user)])
    os.execvp(sys.argv[split + 1], sys.argv[split + 1:])


main()
