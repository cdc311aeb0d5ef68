# SPDX-License-Identifier: Apache-2.0
"""The coverage table: what the library served and what went to the kernel."""

BEGIN, END = "<!-- coverage: begin -->", "<!-- coverage: end -->"


def amount(n):
    for unit in ("", " KiB", " MiB"):
        if n < 10000:
            return f"{n:.0f}{unit}"
        n /= 1024
    return f"{n:.0f} GiB"


def served(counted):
    return tuple(sum(counted[f"{what}_{unit}"] for what in ("read", "append", "overwrite")) for unit in ("ops", "bytes"))


def kernel(counted):
    return tuple(sum(counted["kernel"][f"{what}_{unit}"] for what in ("read", "write", "copy")) for unit in ("calls", "bytes"))


def share(mine, theirs):
    return f"{100 * mine / (mine + theirs):.0f} %" if mine + theirs else "-"


def summary(results, modes):
    for mode in modes:
        counted = [figures[mode] for *_, figures in results if mode in figures]
        mine, theirs = [served(c) for c in counted], [kernel(c) for c in counted]
        ops, size = (sum(m[i] for m in mine) for i in (0, 1))
        calls, passed = (sum(t[i] for t in theirs) for i in (0, 1))
        print(
            f"{mode}: the library served {ops} calls, {amount(size)}; the kernel {calls} calls, {amount(passed)}, and "
            f"{sum(c['kernel']['map_calls'] for c in counted)} mappings; "
            f"{sum(c['kernel']['violations'] for c in counted)} violations"
        )


def table(path, results, modes):
    lines = [BEGIN, f"| row | {' | '.join(f'{m}: library, kernel, share of bytes' for m in modes)} | mapped | violations |"]
    lines.append("| --- " * (len(modes) + 3) + "|")
    for row, _, _, _, figures in results:
        cells, violations, mapped = [], 0, 0
        for mode in modes:
            counted = figures.get(mode)
            if not counted:
                cells.append("failed")
                continue
            (ops, mine), (calls, theirs) = served(counted), kernel(counted)
            cells.append(f"{ops} / {amount(mine)}, {calls} / {amount(theirs)}, {share(mine, theirs)}")
            violations += counted["kernel"]["violations"]
            mapped = max(mapped, counted["kernel"]["map_calls"])
        lines.append(f"| {row.name} | {' | '.join(cells)} | {mapped} | {violations} |")
    with open(path) as f:
        text = f.read()
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")
    with open(path, "w") as f:
        f.write(head + "\n".join(lines) + "\n" + END + tail)
