# SPDX-License-Identifier: Apache-2.0
"""The papers' own numbers, as they stand there, and which of ours stand beside them.

All were measured on Intel Optane DC persistent memory. SplitFS: Kadekodi et al., SOSP '19; ctFS: Li et al., ACM
Transactions on Storage, 2022.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Said:
    cite: str
    what: str
    said: str  # by the paper
    row: str  # ours
    figure: str = None  # of that row; None: its time
    unit: str = "ns"  # in which the paper gives a time of a call, and ours is shown
    wanted: str = "values"  # or "speedup": how many times as fast as plain each mode is


TABLE_6 = [
    ("open", 1.54, 1.82, 2.08, 2.09),
    ("close", 0.34, 0.69, 0.69, 0.78),
    ("append", 11.05, 2.84, 3.09, 3.14),
    ("fsync", 28.98, 6.80, 6.80, 6.85),
    ("read", 5.04, 4.53, 4.53, 4.57),
    ("unlink", 8.60, 14.33, 13.56, 14.60),
]

SAID = [
    Said(
        "SplitFS, Table 1",
        "append of 4 KiB",
        "ext4 DAX 9002 ns, PMFS 4150, NOVA-Strict 3021, SplitFS-POSIX 1160, SplitFS-Strict 1251",
        "append",
        "append",
    ),
    *(
        Said(
            "SplitFS, Table 6",
            call,
            f"ext4 DAX {ext4:.2f} us, POSIX {posix:.2f}, Sync {sync:.2f}, Strict {strict:.2f}",
            "mails",
            call,
            "us",
        )
        for call, ext4, posix, sync, strict in TABLE_6
    ),
    Said(
        "SplitFS, Figure 3 (section 5.5)",
        "appends of 4 KiB, an fsync each ten",
        "staging files: about 2 times; with relink: 5 times the throughput",
        "append-fsync10",
        "append",
        wanted="speedup",
    ),
    Said(
        "SplitFS, Figure 3 (section 5.5)",
        "overwrites of 4 KiB, an fsync each ten",
        "more than 2 times ext4 DAX",
        "overwrite-fsync10",
        "overwrite",
        wanted="speedup",
    ),
    *(
        Said("SplitFS, Figure 3 (section 5.5)", what, said, row, figure, wanted="speedup")
        for what, said, row, figure in (
            (
                "overwrites, mapped, nothing staged",
                "more than 2 times ext4 DAX",
                "figure3-overwrite-mapped",
                "overwrite",
            ),
            ("appends, staged and copied", "about 2 times ext4 DAX", "figure3-append-staged", "append"),
            ("appends, staged and relinked", "5 times ext4 DAX", "figure3-append-relinked", "append"),
        )
    ),
    Said(
        "SplitFS, Figure 4 (section 5.6)",
        "appends",
        "POSIX: execution time of ext4 DAX reduced by as much as 7.85 times",
        "pattern-append",
        "append",
        wanted="speedup",
    ),
    Said(
        "SplitFS, Figure 4 (section 5.6)",
        "sequential reads",
        "POSIX: execution time of ext4 DAX reduced by at least 27 %",
        "pattern-seq-read",
        "read",
        wanted="speedup",
    ),
    Said(
        "SplitFS, Figure 6 (section 5.8)",
        "YCSB Run A; the paper's is on LevelDB, ours on SQLite",
        "POSIX: 2 times ext4 DAX",
        "ycsb-sqlite",
        "run a",
        wanted="speedup",
    ),
    Said(
        "SplitFS, Figure 6 (section 5.8)",
        "YCSB Load A; the paper's is on LevelDB, ours on SQLite",
        "POSIX: 89 % more than ext4 DAX",
        "ycsb-sqlite",
        "load a",
        wanted="speedup",
    ),
    Said(
        "SplitFS, Figure 6 (section 5.8)",
        "YCSB Load E; the paper's is on LevelDB, ours on SQLite",
        "POSIX: 91 % more than ext4 DAX",
        "ycsb-sqlite",
        "load e",
        wanted="speedup",
    ),
    Said(
        "SplitFS, Figure 6 (section 5.8)",
        "Redis SET",
        "POSIX: 27 % more than ext4 DAX",
        "redis-everysec",
        "figure",
        wanted="speedup",
    ),
    *(
        Said(
            "SplitFS, Figure 6 (section 5.9)",
            name,
            "at most 13 % slower than the best other file system",
            name,
            None,
            wanted="speedup",
        )
        for name in ("git", "tar", "rsync")
    ),
    Said(
        "ctFS, Figure 9 (section 4.1.1)",
        "append of 4 KiB",
        "ctFS in sync: 7.7 times ext4-DAX, 3.1 times SplitFS in sync",
        "pattern-append",
        "append",
        wanted="speedup",
    ),
    *(
        Said(
            "ctFS, Figure 10 (section 4.1.2)",
            f"{short}; the paper gives the mean of its five",
            "ctFS in sync: on average 2.17 times ext4-DAX, 1.97 times SplitFS in sync",
            row,
            figure,
            wanted="speedup",
        )
        for short, row, figure in (
            ("SW", "ctfs-SW", "overwrite"),
            ("RW", "pattern-rand-write", "overwrite-random"),
            ("SR", "ctfs-SR", "read"),
            ("RR", "pattern-rand-read", "read-random"),
        )
    ),
    *(
        Said(
            "ctFS, Figure 13 (section 4.2)",
            f"RocksDB, {figure}; ctFS ran without RocksDB's log, ours with it",
            f"ctFS-strict: {times} times ext4-DAX",
            "rocksdb-wal",
            figure,
            wanted="speedup",
        )
        for figure, times in (("fillrandom", "1.60"), ("readrandom", "1.22"), ("updaterandom", "1.3"))
    ),
    *(
        Said(
            "ctFS, Figure 13 (section 4.2)",
            f"RocksDB without its log, {figure}",
            f"ctFS-sync: {times} ext4-DAX",
            "rocksdb-nowal",
            figure,
            wanted="speedup",
        )
        for figure, times in (
            ("fillrandom", "on par with"),
            ("readrandom", "1.25 times"),
            ("updaterandom", "1.19 times"),
        )
    ),
]
