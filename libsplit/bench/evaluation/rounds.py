# SPDX-License-Identifier: Apache-2.0
"""The order of the runs."""

import sys

from . import ground, measure


def one_round(args, where, row, turn, kept, bar):
    """A round of one row: each mode once, in an order that rotates."""
    modes = ground.modes(where.kind)
    if kept.has(where.kind, row.name, turn, modes):
        bar.update(len(modes))
        return
    n = row.quick if args.quick else row.full
    at = turn % len(modes)
    for mode in modes[at:] + modes[:at]:
        bar.set_postfix_str(f"{where.kind} {row.name} {mode}")
        try:
            sample = measure.run(where, row, mode, n, args.tools.resolve(), args.worker.resolve())
        except measure.Failure as failure:
            bar.write(f"FAILED {where.kind} {row.name} {mode}: {failure}", file=sys.stderr)
            sample = {"error": str(failure)}
        kept.add(where.kind, row.name, turn, mode, sample)
        bar.update(1)
