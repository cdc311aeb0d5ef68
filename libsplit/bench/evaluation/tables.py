# SPDX-License-Identifier: Apache-2.0
"""The tables of the evaluation, as cells, for the page and the report."""

import dataclasses

from .absent import ABSENT
from .ground import DAX, DURABLE, PLAIN, modes
from .papers import SAID

NAMES = {"xfs": "XFS on a loop device in memory", "tmpfs": "tmpfs", DAX: "ext4 DAX in a virtual machine"}
NANOSECONDS = {"ns": 1, "us": 1000}
TITLES = {PLAIN: "plain", DURABLE: "plain, each write durable"}


@dataclasses.dataclass
class Table:
    title: str
    about: str
    head: list
    rows: list


def number(value):
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def times(entry, base):
    wall, cpu = entry.get(f"wall_of_{base}"), entry.get(f"cpu_of_{base}")
    if not wall:
        return "-"
    text = f"{wall['median']:.2f}"
    if wall["min"] < wall["max"]:
        text += f" ({wall['min']:.2f} to {wall['max']:.2f})"
    return f"{text}; CPU {cpu['median']:.2f}" if cpu else text


def beside_the_kernel(kind, rows, summary):
    library = [mode for mode in modes(kind) if mode not in (PLAIN, DURABLE)]
    durable = [mode for mode in library if mode != "posix" and DURABLE in modes(kind)]
    head = [
        "row",
        "rounds",
        "plain, s; CPU s",
        *library,
        *(f"{mode} / durable" for mode in durable),
        "calls served: " + ", ".join(library),
    ]
    body = []
    for row in rows:
        found = summary[kind].get(row.name)
        if not found:
            continue
        if not found["modes"]:
            body.append([row.name, "0", "; ".join(found["failed"]), *[""] * (len(head) - 3)])
            continue
        entries = found["modes"]
        base = entries[PLAIN]
        body.append(
            [
                row.name + (" (some failed)" if found["failed"] else ""),
                str(found["rounds"]),
                f"{number(base['wall_s']['median'])}; {number(base['cpu_s']['median'])}",
                *(times(entries[mode], PLAIN) for mode in library),
                *(times(entries[mode], DURABLE) for mode in durable),
                ", ".join(f"{entries[mode]['served']:,.0f}" for mode in library),
            ]
        )
    about = ABOUT_TIMES + (ABOUT_DURABLE + ABOUT_NAMES[kind == DAX] if durable else "")
    return Table(f"Beside the kernel: {NAMES[kind]}", about + (ABOUT_DAX if kind == DAX else ""), head, body)


ABOUT_TIMES = (
    "How many times as fast as the plain kernel each mode is: by the clock, median (least and greatest round), then "
    "by CPU time, that of the volume's agent included. Above 1 the library is faster. "
)
ABOUT_DURABLE = (
    'The columns with "durable" compare with the kernel where each write is durable when it returns (the file '
    "attribute S). That is what sync and strict promise on persistent memory. "
)
ABOUT_NAMES = {
    False: "An emulated volume keeps across a power loss only what was fsynced, in every mode: so these columns show "
    "what the kernel would pay for the promise, and not that the same promise is cheaper here. Names and attributes "
    "are durable when a call returns, too, as in sync and strict: that file system of its own is mounted with wsync. ",
    True: "Names and attributes are not made durable by the attribute S; in sync and strict they are. ",
}
ABOUT_DAX = (
    "The machine is emulated and has one processor, whose clock counts instructions: a second is 10^9 of them. Nothing "
    "else disturbs that, and it knows neither caches nor a device that is waited for. The first figure also counts "
    "what the machine waits for, as the programs' own files, which come from outside: CPU time says more, and leaves "
    "out the journal's thread."
)


def own_figures(kind, rows, summary):
    columns = modes(kind)
    body = []
    for row in rows:
        entries = summary[kind].get(row.name, {}).get("modes")
        for name in entries[PLAIN]["figures"] if entries else []:
            unit = figure_of(row, name).unit
            cells = [entries[mode]["figures"].get(name) for mode in columns]
            body.append(
                [row.name, "" if name == "figure" else name, unit, *(number(c["median"]) if c else "-" for c in cells)]
            )
    about = "What the programs themselves say, and nanoseconds by the clock of single calls. Medians of the rounds."
    return Table(
        f"Figures: {NAMES[kind]}", about, ["row", "figure", "unit", *(TITLES.get(mode, mode) for mode in columns)], body
    )


def figure_of(row, name):
    return row.figures()[name] if hasattr(row, "steps") else row.figure


def speedups(kind, row, entries, said):
    cells = []
    for mode in modes(kind):
        if mode in (PLAIN, DURABLE):
            continue
        if said.figure is None:
            value = entries[mode]["wall_of_plain"]["median"]
        else:
            plain, mine = (entries[m]["figures"][said.figure]["median"] for m in (PLAIN, mode))
            value = mine / plain if figure_of(row, said.figure).more else plain / mine
        cells.append(f"{mode} {value:.2f}")
    return ", ".join(cells) + " times plain"


def ours(kind, row, entries, said):
    if said.wanted == "speedup":
        return speedups(kind, row, entries, said)
    cells = [
        f"{TITLES.get(mode, mode)} {number(entries[mode]['figures'][said.figure]['median'] / NANOSECONDS[said.unit])}"
        for mode in modes(kind)
        if mode != DURABLE
    ]
    return ", ".join(cells) + f" {said.unit}"


def beside_the_papers(kind, rows, summary):
    by_name = {row.name: row for row in rows}
    body = []
    for said in SAID:
        entries = summary[kind].get(said.row, {}).get("modes")
        if entries and (said.figure is None or said.figure in entries[PLAIN]["figures"]):
            body.append([said.cite, said.what, said.said, ours(kind, by_name[said.row], entries, said)])
    here = "of instructions on ext4 DAX" if kind == DAX else "of an emulated volume"
    about = (
        f"What the papers say of persistent memory, and what this run has measured {here}. They are different "
        "machines, kernels, file systems and sizes: neither stands for the other."
    )
    head = ["table or figure", "what", "paper, Optane", "here, instructions" if kind == DAX else "here, emulated"]
    return Table(f"Beside the papers: {NAMES[kind]}", about, head, body)


def what_rows_are(rows):
    body = [[row.name, row.source, row.about, str(row.full or "-"), str(row.quick or "-")] for row in rows]
    return Table(
        "Rows",
        "How much is the number that a row works with: MiB, records, mails, transactions or requests, as the row has "
        "it.",
        ["row", "source", "what is done", "how much", "with --quick"],
        body,
    )


def not_there(skipped):
    body = [[what, why] for what, why in ABSENT] + [
        [name, f"not on this machine: {why}"] for name, why in skipped.items()
    ]
    return Table("Not in it", "", ["what", "why"], body)


def all_tables(kinds, rows, summary, skipped):
    tables = []
    for kind in kinds:
        tables += [
            beside_the_kernel(kind, rows, summary),
            beside_the_papers(kind, rows, summary),
            own_figures(kind, rows, summary),
        ]
    return [t for t in (*tables, what_rows_are(rows), not_there(skipped)) if t.rows]
