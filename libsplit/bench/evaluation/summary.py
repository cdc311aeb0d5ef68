# SPDX-License-Identifier: Apache-2.0
"""Medians and ratios of the samples. A ratio is taken within a round: how many times as fast as the kernel a mode
is."""

import statistics

from .ground import DURABLE, PLAIN, modes


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def cpu(sample):
    return sample["cpu_s"] + sample["agent_s"]


def ratio(rounds, base, mode, value):
    """base over mode, round by round."""
    pairs = [(value(r[base]), value(r[mode])) for r in rounds if base in r and mode in r]
    pairs = [(b, m) for b, m in pairs if b > 0 and m > 0]
    return spread([b / m for b, m in pairs]) if pairs else None


def figures(rounds, mode):
    names = dict.fromkeys(name for r in rounds for name in r[mode]["figures"])
    return {name: spread([r[mode]["figures"][name] for r in rounds if name in r[mode]["figures"]]) for name in names}


def of_row(kind, rounds):
    """What is known of a row on one ground; rounds in which a mode failed count for nothing."""
    failed = sorted({f"{mode}: {s['error']}" for r in rounds for mode, s in r.items() if "error" in s})
    whole = [r for r in rounds if all("error" not in s for s in r.values()) and set(r) == set(modes(kind))]
    found = {"failed": failed, "rounds": len(whole), "modes": {}}
    for mode in modes(kind) if whole else []:
        entry = {
            "wall_s": spread([r[mode]["wall_s"] for r in whole]),
            "cpu_s": spread([cpu(r[mode]) for r in whole]),
            "served": statistics.median(r[mode]["served"] for r in whole),
            "figures": figures(whole, mode),
        }
        for base in (PLAIN, DURABLE):
            if base in modes(kind) and mode != base:
                entry[f"wall_of_{base}"] = ratio(whole, base, mode, lambda s: s["wall_s"])
                entry[f"cpu_of_{base}"] = ratio(whole, base, mode, cpu)
        found["modes"][mode] = entry
    return found


def summarize(rows, kinds, samples):
    """{ground: {row: what is known of it}}"""
    return {
        kind: {
            row.name: of_row(kind, list(samples.rounds(kind, row.name).values()))
            for row in rows
            if samples.rounds(kind, row.name)
        }
        for kind in kinds
    }
