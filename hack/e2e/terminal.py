# SPDX-License-Identifier: Apache-2.0
"""terminal.py COLUMNS COMMAND...: runs it on a terminal of so many columns and prints what it shows, or fails where a line is wider."""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from on_terminal import on_terminal  # noqa: E402

columns = int(sys.argv[1])
status, shown = on_terminal(columns, sys.argv[2:], lines=60)
text = re.sub(r"\033\[[0-9]*[A-Z]|\r", "", shown.decode())
print(text, end="")
wide = [line for line in text.splitlines() if len(line) > columns]
# A word that is wider than the terminal can't be broken.
wide = [line for line in wide if max(map(len, line.split())) < columns / 2]
if wide:
    sys.exit(f"wider than {columns} columns: {wide}")
sys.exit(status)
