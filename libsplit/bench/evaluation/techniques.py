# SPDX-License-Identifier: Apache-2.0
"""SplitFS, Figure 3: the techniques one after another, by turning off those that come later. Each file is asked for
with its first call, so that it is the techniques that are measured and not the rule that says whom they pay for."""

from .calls import fsync_every_ten, tens
from .row import Calls

# name, what it is, settings, options of the agent
TECHNIQUES = [
    (
        "mapped",
        "reads and overwrites through the mapped file, and nothing staged (posix; sync and strict stage in any case)",
        (("SPLITFS_STAGING", "off"),),
        (),
    ),
    ("staged", "staged too, and copied into the file", (), ("--provider", "copy")),
    ("relinked", "staged, and moved into the file: all of it", (), ()),
]

ROWS = [
    Calls(
        f"figure3-{operation}-{name}",
        "SplitFS, Figure 3",
        f"{operation}s of 4 KiB, an fsync after each ten: {about}",
        16,
        2,
        fsync_every_ten(operation),
        tens(operation),
        settings=(("SPLITFS_GRANT", "first"), *settings),
        agent=agent,
    )
    for operation in ("append", "overwrite")
    for name, about, settings, agent in TECHNIQUES
]
