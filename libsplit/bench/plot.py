#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw bench.json as a picture: how many times faster than the kernel each mode is, with the spread of the rounds."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen first)

COLOURS = {"posix": "#1b6ca8", "sync": "#2a9d5c", "strict": "#c1582b"}


def main():
    if len(sys.argv) != 3 or sys.argv[1] == "--help":
        print("Usage: plot.py BENCH.JSON PICTURE.PNG")
        return 0 if sys.argv[1:] == ["--help"] else 2
    with open(sys.argv[1], encoding="ascii") as file:
        report = json.load(file)
    names = list(report["operations"])
    figure, axes = plt.subplots(figsize=(11, 5.5))
    for i, (mode, colour) in enumerate(COLOURS.items()):
        ratio = [report["operations"][name]["ratio"][mode] for name in names]
        middle = [r["median"] for r in ratio]
        error = [[r["median"] - r["min"] for r in ratio], [r["max"] - r["median"] for r in ratio]]
        bars = axes.bar([x + 0.26 * (i - 1) for x in range(len(names))], middle, 0.25, yerr=error, capsize=3, label=mode, color=colour)
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    for x, name in enumerate(names):
        for mode, aim in report["operations"][name]["aim"].items():
            at = x + 0.26 * (list(COLOURS).index(mode) - 1)
            axes.plot([at - 0.12, at + 0.12], [aim, aim], color="black", linewidth=2)
    axes.axhline(1, color="grey", linewidth=1)
    axes.set_yscale("log")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("times faster than the kernel path (CPU time, before relink)")
    machine = report["machine"]
    axes.set_title(f"libsplit on an emulated volume ({report['fs']}), Linux {machine['kernel']}, {machine['cpus']} CPUs; "
                   "whiskers: least and greatest round; black: aim", fontsize=10)
    axes.legend()
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
