# SPDX-License-Identifier: Apache-2.0
"""The ground that is no emulated volume: ext4 DAX in a virtual machine (hack/vm evaluate). The rows run there by the
same code (inside.py), and what they measure is added to the same file of samples."""

import pathlib
import subprocess

from .facts import REPO


def run(args, rows, kept):
    """Raises CalledProcessError when the machine did not come to its end."""
    command = [REPO / "hack/vm", "evaluate", "--out", args.out.resolve(), "--rounds", str(args.rounds)]
    if args.quick:
        command.append("--quick")
    for share in {args.tools.resolve(), *(path.resolve().parent for path in (args.splitfs, args.library, args.worker))}:
        if pathlib.Path(share).exists():
            command += ["--see", share]
    command += ["--", "--tools", args.tools.resolve(), "--worker", args.worker.resolve()]
    command += ["--splitfs", args.splitfs.resolve(), "--library", args.library.resolve()]
    subprocess.run([str(word) for word in (*command, "--only", *(row.name for row in rows))], check=True)
    kept.read_again()
