# SPDX-License-Identifier: Apache-2.0
"""Volumes to run programs on: a file system of our own, directories of it that an agent serves, and the plain directory beside."""

import json
import os
import subprocess
import time

MODES = ("posix", "sync", "strict")
POOL = ("--pool-bytes", "48M", "--chunk-bytes", "4M", "--log-bytes", "1M")
START_SECONDS = 30


class Machine:
    """XFS on a loop device in memory, which is what the product serves where there is no persistent memory; else a tmpfs.
    more: options that it is mounted with besides."""

    def __init__(self, work, size="3g", fs="xfs", more=()):
        self.dir, self.input, self.mounts = f"{work}/fs", f"{work}/input", []
        for d in (self.dir, self.input, f"{work}/image"):
            os.makedirs(d)
        self.mount(f"{work}/image", "-t", "tmpfs", "-o", f"size={size}", "splitfs-test")
        if fs == "tmpfs":
            self.mount(self.dir, "-t", "tmpfs", "-o", f"size={size}", "splitfs-test")
            return
        image = f"{work}/image/{fs}"
        with open(image, "wb") as f:
            f.truncate(int(size[:-1]) << 30)
        make = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "ext4": ["mkfs.ext4", "-q", "-E", "lazy_itable_init=1"]}[fs]
        subprocess.run(make + [image], check=True)
        self.mount(self.dir, "-o", ",".join(("loop", "noatime", *more)), image)

    def mount(self, where, *how):
        subprocess.run(["mount", *how, where], check=True)
        self.mounts.append(where)

    def close(self):
        for m in reversed(self.mounts):
            for _ in range(50):
                if subprocess.run(["umount", m], stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.1)
            else:
                subprocess.run(["umount", "-l", m], check=True)


class Volume:
    """A directory that an agent serves in one mode; mode "plain": a directory."""

    def __init__(self, splitfs, libsplit, root, mode, pool=POOL):
        self.splitfs, self.libsplit, self.root, self.mode, self.pool, self.agent = splitfs, libsplit, root, mode, pool, None
        os.makedirs(root)

    def start(self):
        if self.mode == "plain":
            return self
        self.agents = self.root + ".agents"
        os.makedirs(self.agents, exist_ok=True)
        os.chmod(self.agents, 0o711)
        with open(self.root + ".log", "a") as log:
            self.agent = subprocess.Popen(
                [self.splitfs, "agent", self.root, "--agents-dir", self.agents, *self.pool],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        if self.agent.stdout.readline() != "ready\n":
            raise RuntimeError(f"the agent of {self.root} does not start: {self.said()}")
        return self

    def environment(self, at):
        """Of a program that sees the volume, or a part of it, at that path."""
        if self.mode == "plain":
            return {}
        return {"LD_PRELOAD": self.libsplit, "SPLITFS_CONFIG": f"{self.mode}:{at}:{self.agents}"}

    def said(self):
        with open(self.root + ".log") as f:
            return f.read()

    def status(self):
        out = subprocess.run([self.splitfs, "status", self.root, "--json"], capture_output=True, text=True, check=True)
        return json.loads(out.stdout)

    def settle(self, seconds=60):
        """Wait until the agent has put right what processes that are gone have left."""
        until = time.monotonic() + seconds
        while self.mode != "plain" and any(not p["alive"] for p in self.status()["processes"]):
            if time.monotonic() > until:
                raise RuntimeError(f"the agent of {self.root} has not recovered a dead process within {seconds} s")
            time.sleep(0.02)

    def stop(self):
        if self.agent:
            self.agent.terminate()
            self.agent.wait(START_SECONDS)
            self.agent.stdout.close()
            self.agent = None
