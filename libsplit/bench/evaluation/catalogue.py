# SPDX-License-Identifier: Apache-2.0
"""All rows, in the order in which they run."""

from . import calls, filebench, programs, techniques, tpcc

ROWS = [*calls.ROWS, *techniques.ROWS, *programs.ROWS, *filebench.ROWS, *tpcc.ROWS]
