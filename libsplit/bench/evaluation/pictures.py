# SPDX-License-Identifier: Apache-2.0
"""Plots for the report, as SVG."""

import io

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen first)
from matplotlib import ticker  # noqa: E402

from .ground import DAX, DURABLE, PLAIN, modes  # noqa: E402
from .tables import NAMES  # noqa: E402

COLOURS = {"posix": "#1b6ca8", "sync": "#2a9d5c", "strict": "#c1582b"}  # as in bench/plot.py
WHAT = {"wall_of_plain": "by the clock", "cpu_of_plain": "CPU time"}


def svg(figure):
    out = io.StringIO()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def one(axes, kind, found, key):
    library = [mode for mode in modes(kind) if mode not in (PLAIN, DURABLE)]
    for i, mode in enumerate(library):
        points = [
            (y, entry["modes"][mode][key]) for y, entry in enumerate(found.values()) if entry["modes"][mode].get(key)
        ]
        at = [y + 0.26 * (i - 1) for y, _ in points]
        middle = [r["median"] for _, r in points]
        error = [[r["median"] - r["min"] for _, r in points], [r["max"] - r["median"] for _, r in points]]
        axes.barh(at, middle, 0.25, xerr=error, capsize=2, label=mode, color=COLOURS[mode])
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.margins(y=0.01)
    axes.set_title(WHAT[key], fontsize=10)
    axes.set_xlabel("times as fast as the plain kernel")


def picture(kind, summary):
    """All rows of one ground, or None."""
    found = {name: entry for name, entry in summary[kind].items() if entry["modes"]}
    if not found:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(13, 1.5 + 0.45 * len(found)), sharey=True)
    for a, key in zip(axes, WHAT):
        one(a, kind, found, key)
    axes[0].set_yticks(range(len(found)), list(found))
    axes[0].invert_yaxis()
    axes[0].legend(loc="best")
    figure.suptitle(f"{NAMES[kind]}{'' if kind == DAX else ', emulated'}; whiskers: least and greatest round", fontsize=10)
    figure.tight_layout()
    return svg(figure)
