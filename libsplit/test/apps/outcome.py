# SPDX-License-Identifier: Apache-2.0
"""Running a script where it sees the same path in every mode, and looking at what it left from outside."""

import hashlib
import os
import signal
import stat
import subprocess
import time

# The script is process 1's child in namespaces of its own: nothing that it starts survives it, and whatever the volume is, it sees it
# at the same path. The library is given to the script alone.
ENTER = 'mount --bind "$1" "$2" && cd "$2" && shift 2 && "$@"; exit $?'
CONTROL = ".splitfs"


class Outcome:
    """Exit status, what was printed, and the tree: for each name what a process without the library sees."""

    def __init__(self, status, out, err, tree, seconds):
        self.status, self.out, self.err, self.tree, self.seconds = status, out, err, tree, seconds

    def differences(self, other, names=("here", "there")):
        said = []
        for what in ("status", "out", "err"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                said.append(f"{what}: {names[0]} {mine!r:.400}, {names[1]} {theirs!r:.400}")
        for name in sorted(self.tree.keys() | other.tree.keys()):
            mine, theirs = self.tree.get(name), other.tree.get(name)
            if mine != theirs:
                said.append(f"{name}: {names[0]} {mine or 'missing'}, {names[1]} {theirs or 'missing'}")
        return said

    def checksum(self):
        """Of what was printed and of names and contents: what does not depend on who runs it and when."""
        h = hashlib.sha256(self.out)
        for name in sorted(self.tree):
            h.update(f"{name} {self.tree[name]['content']}\n".encode(errors="surrogateescape"))
        return h.hexdigest()[:16]


def entry(path, began):
    st = os.lstat(path)
    e = {"mode": oct(st.st_mode), "owner": f"{st.st_uid}:{st.st_gid}", "content": ""}
    if st.st_mtime < began - 3600 or st.st_mtime > began + 3600:
        e["mtime"] = st.st_mtime_ns  # somebody has set it
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as f:
            data = f.read()
        e["content"] = hashlib.sha256(data).hexdigest()[:16]
        e["size"], e["links"] = st.st_size, st.st_nlink
        if len(data) != st.st_size:
            e["read"] = len(data)
    elif stat.S_ISLNK(st.st_mode):
        e["content"] = os.readlink(path)
    return e


def look(directory, began):
    tree = {}
    for where, dirs, files in os.walk(directory):
        if CONTROL in dirs:
            dirs.remove(CONTROL)
        for name in dirs + files:
            path = os.path.join(where, name)
            tree[os.path.relpath(path, directory)] = entry(path, began)
    return tree


def command(script, directory, at, preload, before=()):
    """That runs it in the directory, bind-mounted at `at`. before: a command to run it; preload: what the library needs."""
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", ENTER, "sh", directory, at]
    return [*enter, *before, "env", *(f"{k}={v}" for k, v in preload.items()), "bash", "-euo", "pipefail", "-c", script]


def run(script, directory, at, environment, preload, before=(), limit=60):
    """Run it to its end, and look."""
    began, start = time.time(), time.monotonic()
    process = subprocess.Popen(
        command(script, directory, at, preload, before),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status = f"no end after {limit} s"
    seconds = time.monotonic() - start
    return Outcome(status, out, err, look(directory, began), seconds)
