# SPDX-License-Identifier: Apache-2.0
"""The machine and the versions."""

import contextlib
import hashlib
import os
import pathlib
import platform
import subprocess

REPO = pathlib.Path(__file__).resolve().parent.parent.parent.parent
PACKAGES = (
    "redis-server",
    "libsqlite3-0",
    "rocksdb-tools",
    "postgresql-15",
    "fio",
    "lmdb-utils",
    "git",
    "tar",
    "rsync",
)


def first_line(path, start):
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(start):
                return line[len(start) :].strip(' \t:=\n"')
    return ""


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPO)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine():
    return {
        "cpu": first_line("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "memory_kib": int(first_line("/proc/meminfo", "MemTotal").split()[0]),
        "kernel": platform.release(),
        "system": first_line("/etc/os-release", "PRETTY_NAME"),
    }


def versions():
    found = (output("dpkg-query", "--show", "--showformat=${Package} ${Version}", name) for name in PACKAGES)
    return [line for line in found if line]


def commit():
    """The one that is checked out, and "+" where the tree differs from it. The page and the reports are no part of
    what is measured."""
    dirty = output("git", "status", "--porcelain", "--", "libsplit/src", "libsplit/tools", "libsplit/bench")
    return output("git", "rev-parse", "--short=12", "HEAD") + ("+" if dirty else "")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
