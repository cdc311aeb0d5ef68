# SPDX-License-Identifier: Apache-2.0
"""Keeps a gate for agents that are killed one after the other, as the supervisor of a node's agents does, while programs without the
library want to write.

gate.py KILLS STATIC FILE SPLITFS agent ROOT OPTION...
"""
import ctypes
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import time

CONTENT, NONBLOCK, CLOEXEC, UNLIMITED_QUEUE, UNLIMITED_MARKS, REPORT_TID = 0x4, 0x2, 0x1, 0x10, 0x20, 0x100
LISTEN, GATE = 3, 4


def keep_gate():
    """Descriptors 4 and 5: the group, and the memory of its questions."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.fanotify_init(CONTENT | NONBLOCK | CLOEXEC | UNLIMITED_QUEUE | UNLIMITED_MARKS | REPORT_TID,
                            os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    memory = os.memfd_create("gate")
    group, memory = (fcntl.fcntl(x, fcntl.F_DUPFD, 64) for x in (fd, memory))
    os.dup2(group, GATE)
    os.dup2(memory, GATE + 1)


def start(command):
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(GATE, GATE + 1))
    assert agent.stdout.readline() == b"ready\n"
    return agent


def main():
    kills, static, path, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    keep_gate()
    command += ["--gate-fd", str(GATE)]
    over, passed, tried, slowest, wrong = threading.Event(), [], [0], [0.0], []

    def write():
        while not over.is_set():
            began = time.monotonic()
            said = subprocess.run([static, "libc", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
            slowest[0] = max(slowest[0], time.monotonic() - began)
            tried[0] += 1
            if said == b"ok\n":
                passed.append(began)
            elif said != b"EPERM\n":
                wrong.append(said)

    agent = start(command)
    writers = [threading.Thread(target=write) for _ in range(3)]
    for w in writers:
        w.start()
    for i in range(kills):
        time.sleep(0.1 + random.random() / 5)
        agent.send_signal(signal.SIGKILL if i % 3 else signal.SIGTERM)
        agent.wait()
        time.sleep(random.random() / 5)
        agent = start(command)
    over.set()
    for w in writers:
        w.join()
    print("%d opens without the library during %d deaths: %d went through, the slowest took %.2f s" % (
        tried[0], kills, len(passed), slowest[0]))
    assert not wrong, wrong
    assert tried[0] > kills
    assert len(passed) <= kills, "%d went through" % len(passed)
    # One more that everything is as it was.
    assert subprocess.run([static, "libc", path], stdout=subprocess.PIPE).stdout == b"EPERM\n"
    agent.terminate()
    agent.wait()


main()
