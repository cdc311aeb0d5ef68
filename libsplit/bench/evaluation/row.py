# SPDX-License-Identifier: Apache-2.0
"""What a row of the evaluation is: a piece of work that is done again and again in each mode."""

import dataclasses
import shutil

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that the work itself tells, beside the time that it takes."""

    unit: str
    more: bool = False  # more is better


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    source: str  # the paper's table or figure, or "further"
    about: str
    full: int  # how much of it, and with --quick
    quick: int
    # Of the library: pairs of a variable and its value. Options of the agent: such a row has volumes of its own.
    settings: tuple = dataclasses.field(default=(), kw_only=True)
    agent: tuple = dataclasses.field(default=(), kw_only=True)


@dataclasses.dataclass(frozen=True)
class Calls(Row):
    """Commands for bench/worker. steps(n) yields pairs of a label, or None where it is not counted, and a command;
    {file} stands for a file's path. A label's figure is the time of all its commands over `per`(n), the number of
    calls in them."""

    steps: object = None
    per: object = None

    def figures(self):
        return {label: Figure("ns") for label in self.per(self.quick)}

    def missing(self, _tools, _ours):
        return []


@dataclasses.dataclass(frozen=True)
class Program(Row):
    """A script for /bin/sh in an empty directory; `before` is not counted and runs without the library. $N says how
    much, $INPUT is a tree of files and a tar of it, $BENCH the directory of hack/build-bench-tools, $OURS that of the
    programs of `make bench-progs`. pattern: a regular
    expression with groups `key` and `value` that finds figures in what the script prints; without `key` there is one,
    "figure"."""

    script: str = ""
    before: str = ""
    needs: tuple = ()  # programs of packages
    built: tuple = ()  # programs of hack/build-bench-tools
    ours: tuple = ()  # of libsplit/bench
    pattern: str = ""
    figure: Figure = None

    def missing(self, tools, ours):
        absent = [f"{name} (hack/install-deps bench)" for name in self.needs if not shutil.which(name, path=PATH)]
        absent += [f"{name} (hack/build-bench-tools)" for name in self.built if not (tools / name).exists()]
        return absent + [f"{name} (make -C libsplit bench-progs)" for name in self.ours if not (ours / name).exists()]
