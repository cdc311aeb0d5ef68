# SPDX-License-Identifier: Apache-2.0
"""The page in Markdown (docs/evaluation.md), and what it has in common with the report: the sentences about the run."""

MARK = "<!-- Written by libsplit/bench/paper (make paper): not to be edited by hand. -->"
LEAD = (
    "`make paper` runs what the papers of SplitFS and ctFS ran, and programs of today, and writes this page, a report "
    "with pictures (`build/paper/report.html`) and all numbers (`paper.json`). "
    "[benchmarks.md](benchmarks.md#evaluation) says how to run it."
)
HOW = [
    "Each row is done by the plain kernel and by the library in its three modes in turns, in an order that rotates "
    "from round to round, in a new directory each time, on one file system; what others have left to be written is "
    "written before. So whatever else the machine does falls on all of them. A ratio is taken within a round.",
    "The library and its agents have their defaults, but in the rows figure3-*, which turn techniques off. CPU time is "
    "that of all processes of the row and of the volume's "
    "agent. The work of the kernel's own threads (the loop device, write-back) is in neither.",
    "Nothing here is persistent memory. XFS and tmpfs are emulated volumes: memory behind a page cache, where the "
    "kernel's path is at its fastest. The virtual machine has real ext4 DAX on emulated persistent memory, and counts "
    "instructions.",
]


def sentences(report):
    facts, run = report["machine"], report["run"]
    load, memory = run["load"], facts["memory_kib"] / (1 << 20)
    lines = [
        f"Commit {report['commit']}, {run['date']}. {facts['cpu']}, {facts['cpus']} CPUs, {memory:.0f} GiB of memory; "
        f"Linux {facts['kernel']}, {facts['system']}. "
        f"Rounds: {run['rounds']}{', with --quick' if run['quick'] else ''}.",
        f"Load average before the runs: {load['median']:.1f} (least {load['min']:.1f}, greatest {load['max']:.1f}); "
        "what was measured makes a part of it.",
    ]
    if run["note"]:
        lines.append(run["note"])
    lines.append("Versions: " + ", ".join(report["versions"]) + ".")
    return lines


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def markdown_table(table):
    lines = [f"## {table.title}", ""]
    if table.about:
        lines += [table.about.strip(), ""]
    lines += ["| " + " | ".join(map(cell, table.head)) + " |", "| " + " | ".join(["---"] * len(table.head)) + " |"]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"


def markdown(report, tables):
    parts = ["# Evaluation\n", MARK + "\n", LEAD + "\n", "\n\n".join(HOW) + "\n"]
    parts += ["## The run\n", "\n\n".join(sentences(report)) + "\n"]
    return "\n".join(parts + [markdown_table(t) for t in tables])
