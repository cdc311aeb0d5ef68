# SPDX-License-Identifier: Apache-2.0
"""selinux-work.py KIND FILE: what a program of a pod does on its volume, in the test `selinux`."""
import os
import signal
import struct
import sys
import time

KIND, PATH = sys.argv[1:3]
LINES = 200


def line(i):
    return b"%07d\n" % i


def secure():
    """What the kernel says of the program's start (AT_SECURE)."""
    with open("/proc/self/auxv", "rb") as f:
        return dict(struct.iter_unpack("QQ", f.read())).get(23, 0)


def append(fd, first, count):
    for i in range(first, first + count):
        assert os.write(fd, line(i)) == 8


def check(want):
    with open(PATH, "rb") as f:
        got = f.read()
    assert got == want, (len(got), len(want))


def wait_for(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, status


def start():
    with open("/proc/self/maps") as f:
        loaded = "libsplit.so" in f.read()
    print("secure", secure(), "loaded", int(loaded), "preload", os.environ.get("LD_PRELOAD", "none"))


def write():
    fd = os.open(PATH, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    append(fd, 0, LINES)
    os.fsync(fd)
    over = os.open(PATH, os.O_RDWR)
    assert os.pwrite(over, b"X" * 4, 16) == 4
    os.fsync(over)
    assert os.pread(over, 8, 16) == b"XXXX002\n"
    want = bytearray(b"".join(map(line, range(LINES))))
    want[16:20] = b"XXXX"
    os.close(over)
    # A child of a fork goes on with the descriptor, and this process after it.
    pid = os.fork()
    if pid == 0:
        append(fd, LINES, 10)
        os._exit(0)
    wait_for(pid)
    append(fd, LINES + 10, 10)
    os.close(fd)
    want += b"".join(map(line, range(LINES, LINES + 20)))
    check(bytes(want))
    # Two programs with the file open at a time.
    fd = os.open(PATH, os.O_WRONLY | os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-W", "ignore", sys.argv[0], "again", PATH])
    for _ in range(20):
        append(fd, 7, 1)
        time.sleep(0.005)
    wait_for(pid)
    os.close(fd)
    check(bytes(want) + line(7) * 40)


def again():
    fd = os.open(PATH, os.O_WRONLY | os.O_APPEND)
    for _ in range(20):
        append(fd, 7, 1)
        time.sleep(0.005)


def kill():
    fd = os.open(PATH, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    append(fd, 0, LINES)
    os.kill(os.getpid(), signal.SIGKILL)


def killed():
    check(b"".join(map(line, range(LINES))))


def attempt():
    """Says what becomes of an attempt to write and of one to read."""
    for flags in (os.O_WRONLY | os.O_CREAT, os.O_RDONLY):
        try:
            os.close(os.open(PATH, flags, 0o644))
            print("ok")
        except OSError as e:
            print(os.strerror(e.errno))


{"start": start, "write": write, "again": again, "kill": kill, "killed": killed, "attempt": attempt}[KIND]()
