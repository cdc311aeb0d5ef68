# SPDX-License-Identifier: Apache-2.0
"""Rows of single calls: SplitFS, Tables 1 and 6 and Figures 3 and 4; ctFS, Figures 9 and 10."""

from .row import Calls

MIB = 1 << 20
BLOCK = 4096
BIG = MIB  # of ctFS's SW and SR, which take 1 GiB at a time


def blocks(mib):
    return mib * MIB // BLOCK


def append(end):
    """end: the label of the fsync and the close behind it."""

    def steps(mib):
        yield None, "open {file}"
        yield "append", f"do append {BLOCK} {blocks(mib)} 1"
        yield end, "fsync"
        yield end, "close"

    return steps


def fsync_every_ten(operation):
    def steps(mib):
        if operation == "overwrite":
            yield None, f"make {{file}} {mib * MIB}"
        yield None, "open {file}"
        for _ in range(blocks(mib) // 10):
            yield operation, f"do {operation} {BLOCK} 10 1"
            yield operation, "fsync"
        yield None, "close"

    return steps


def over_a_file(operation, block=BLOCK):
    """All of a file that has been made before, and what was written is forced at the end."""

    def steps(mib):
        yield None, f"make {{file}} {mib * MIB}"
        yield None, "open {file}"
        yield operation, f"do {operation} {block} {mib * MIB // block} 1"
        if not operation.startswith("read"):
            yield operation, "fsync"
        yield None, "close"

    return steps


def mails(count):
    """The paper's section 5.4: the life of a mail, in its calls."""
    for i in range(count):
        name = f"{{file}}-{i}"
        yield "open, creating", f"open {name}"
        for _ in range(4):
            yield "append", f"do append {BLOCK} 1 1"
            yield "fsync", "fsync"
        yield "close", "close"
        yield "open", f"open {name}"
        yield "read", f"do read {4 * BLOCK} 1 1"
        yield "close", "close"
        yield "open", f"open {name}"
        yield "close", "close"
        yield "unlink", f"unlink {name}"


def of_mails(count):
    each = {"open, creating": 1, "open": 2, "close": 3, "append": 4, "fsync": 4, "read": 1, "unlink": 1}
    return {label: times * count for label, times in each.items()}


def one(label, block=BLOCK):
    return lambda mib: {label: mib * MIB // block}


def tens(label):
    return lambda mib: {label: blocks(mib) // 10 * 10}


ROWS = [
    Calls(
        "append",
        "SplitFS, Table 1",
        "128 MiB appended, 4 KiB a call, before the fsync",
        128,
        8,
        append(None),
        one("append"),
    ),
    Calls(
        "mails",
        "SplitFS, Table 6",
        "create, 4 appends of 4 KiB with fsync, opens, a read of 16 KiB, closes, unlink",
        1000,
        50,
        mails,
        of_mails,
    ),
    Calls(
        "append-fsync10",
        "SplitFS, Figure 3",
        "appends of 4 KiB, an fsync after each ten",
        64,
        4,
        fsync_every_ten("append"),
        tens("append"),
    ),
    Calls(
        "overwrite-fsync10",
        "SplitFS, Figure 3",
        "overwrites of 4 KiB one after the other, an fsync after each ten",
        64,
        4,
        fsync_every_ten("overwrite"),
        tens("overwrite"),
    ),
    Calls(
        "pattern-seq-read",
        "SplitFS, Figure 4; ctFS, Figure 10 (SR)",
        "a file of 128 MiB read, 4 KiB a call",
        128,
        8,
        over_a_file("read"),
        one("read"),
    ),
    Calls(
        "pattern-rand-read",
        "SplitFS, Figure 4; ctFS, Figure 10 (RR)",
        "the same, at random",
        128,
        8,
        over_a_file("read-random"),
        one("read-random"),
    ),
    Calls(
        "pattern-seq-write",
        "SplitFS, Figure 4",
        "a file of 128 MiB overwritten, 4 KiB a call, and an fsync",
        128,
        8,
        over_a_file("overwrite"),
        one("overwrite"),
    ),
    Calls(
        "pattern-rand-write",
        "SplitFS, Figure 4; ctFS, Figure 10 (RW)",
        "the same, at random",
        128,
        8,
        over_a_file("overwrite-random"),
        one("overwrite-random"),
    ),
    Calls(
        "pattern-append",
        "SplitFS, Figure 4; ctFS, Figure 9",
        "128 MiB appended, 4 KiB a call, with fsync and close",
        128,
        8,
        append("append"),
        one("append"),
    ),
    Calls(
        "ctfs-SW",
        "ctFS, Figure 10 (SW)",
        "a file of 128 MiB overwritten, 1 MiB a call (the paper: 1 GiB), and an fsync",
        128,
        16,
        over_a_file("overwrite", BIG),
        one("overwrite", BIG),
    ),
    Calls(
        "ctfs-SR",
        "ctFS, Figure 10 (SR)",
        "a file of 128 MiB read, 1 MiB a call (the paper: 1 GiB)",
        128,
        16,
        over_a_file("read", BIG),
        one("read", BIG),
    ),
]
