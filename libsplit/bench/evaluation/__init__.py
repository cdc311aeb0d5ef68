# SPDX-License-Identifier: Apache-2.0
"""The evaluation: what bench/paper runs, how it is measured, and what is written of it.

row         what a row of the evaluation is
calls       rows of single calls, done by bench/worker
techniques  rows of single calls with techniques turned off
programs    rows of programs from packages
filebench   rows of filebench's personalities
tpcc        rows of TPC-C
catalogue   all rows
absent      what the papers or a reader would want and is not to be had
papers      the papers' own numbers
ground      file systems, volumes and the modes that take turns on them
measure     one run of one row in one mode
samples     what has been measured, kept in a file as it comes
facts       the machine and the versions
summary     medians and ratios of the samples
tables      the tables, as lists of cells
page        the page in Markdown
report      the report in HTML
pictures    its plots
"""
