# SPDX-License-Identifier: Apache-2.0
"""Rows of filebench's personalities. Debian 12 has no filebench: libsplit/bench/filebench makes them again from the
parameters of its workload descriptions."""

from .row import Figure, Program


def personality(name, files, about, full, quick):
    return Program(
        f"filebench-{name}",
        "further",
        f"filebench's {name}, made again: {about}",
        full,
        quick,
        f'"$OURS/filebench" {name} run {files} $N',
        before=f'"$OURS/filebench" {name} make {files} $N',
        ours=("filebench",),
        pattern=r"(?P<value>[\d.]+) operations/s",
        figure=Figure("operations/s", more=True),
    )


ROWS = [
    personality(
        "varmail",
        1000,
        "16 threads, 1,000 files of 16 KiB; deleted, created, appended to with fsync, read whole",
        3000,
        200,
    ),
    personality(
        "fileserver",
        1000,
        "50 threads, 1,000 files (there 10,000) of 128 KiB; created, appended to, read whole, deleted",
        3000,
        200,
    ),
    personality(
        "webserver",
        1000,
        "100 threads, 1,000 files of 16 KiB; ten read whole for each append to a log",
        3000,
        200,
    ),
    personality(
        "oltp",
        10,
        "200 threads read and compute, 10 write pages and one a log, each with O_DSYNC, in three processes",
        20000,
        2000,
    ),
]
