# SPDX-License-Identifier: Apache-2.0
"""File systems to work on, and on each a directory for each mode, whose agent runs as `splitfs run` would start it.

Two are made here and emulated. The third is ext4 DAX in a virtual machine, where this same code is given it (dax.py).
"""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "test/apps"))
import volume  # noqa: E402  (the path is set just above)

EMULATED, DAX = ("xfs", "tmpfs"), "dax"
KINDS = (*EMULATED, DAX)
PLAIN, DURABLE = "plain", "durable"
POOL = ["--pool-bytes", "128M"]  # what `splitfs run` takes
FILES, FILE_BYTES = 30, 1 << 20


def modes(kind):
    """tmpfs loses everything anyway: no write of the kernel's is durable there."""
    return [PLAIN, *([DURABLE] if kind != "tmpfs" else []), *volume.MODES]


def make_input(directory):
    """A tree of small files, a tar of it, and larger files."""
    inputs = pathlib.Path(directory)
    shutil.copytree("/usr/include/linux", inputs / "tree", ignore_dangling_symlinks=True)
    subprocess.run(["tar", "cf", inputs / "tree.tar", "-C", inputs, "tree"], check=True)
    (inputs / "data").mkdir()
    for i in range(FILES):
        (inputs / "data" / f"{i}").write_bytes(os.urandom(FILE_BYTES))


class Mounted:
    """A file system that is there already."""

    def __init__(self, work, mounted):
        self.dir, self.input = mounted, f"{work}/input"
        os.mkdir(self.input)

    def close(self):
        pass


class Ground:
    def __init__(self, kind, work, splitfs, library, mounted=None):
        self.kind, self.volumes = kind, {}
        self.splitfs, self.library = str(splitfs), str(library)
        os.mkdir(work)
        self.machine = Mounted(work, mounted) if mounted else volume.Machine(str(work), fs=kind)
        self.input = self.machine.input
        self.durable = self.machine
        try:
            if kind == "xfs":
                self.durable = volume.Machine(f"{work}/durable", fs=kind, more=["wsync"])
            make_input(self.input)
            for mode in modes(kind):
                self.volume(mode)
        except BaseException:
            self.close()
            raise

    def volume(self, mode, options=()):
        """The one of that mode whose agent has these options besides; it is started when it is first asked for."""
        served = PLAIN if mode == DURABLE else mode
        key = mode if served == PLAIN else "".join((mode, *options))
        if key not in self.volumes:
            machine = self.durable if mode == DURABLE else self.machine
            self.volumes[key] = volume.Volume(
                self.splitfs, self.library, f"{machine.dir}/{key}", served, [*POOL, *options]
            )
            self.volumes[key].start()
        return self.volumes[key]

    def directory(self, mode, row):
        """A new one. In DURABLE, what is written to its files is durable when write returns: the attribute that chattr
        calls S, which XFS gives to new files of a directory. XFS is mounted with wsync there: so are names and
        attributes, as in sync and strict."""
        path = pathlib.Path(self.volume(mode, row.agent).root) / row.name
        path.mkdir()
        if mode == DURABLE:
            subprocess.run(["chattr", "+S", path], check=True)
        return path

    def flush(self):
        """What others have left to be written is not this run's work."""
        for machine in {self.machine, self.durable}:
            subprocess.run(["sync", "-f", machine.dir], check=True)

    def close(self):
        for v in self.volumes.values():
            v.stop()
        for machine in {self.machine, self.durable}:
            machine.close()


def agent_seconds(vol):
    if not vol.agent:
        return 0.0
    # Of each thread, in nanoseconds: /proc/PID/stat counts ticks, and a short row is a few of them.
    threads = pathlib.Path(f"/proc/{vol.agent.pid}/task").glob("*/schedstat")
    return sum(int(t.read_text(encoding="ascii").split()[0]) for t in threads) / 1e9


def served(vol):
    """Calls that the library has served so far."""
    if not vol.agent:
        return 0
    totals = vol.status()["totals"]
    return sum(totals[f"{what}_ops"] for what in ("read", "append", "overwrite"))
