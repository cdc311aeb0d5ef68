# SPDX-License-Identifier: Apache-2.0
"""terminal.py COLUMNS COMMAND...: runs it on a terminal of so many columns and prints what it shows, or fails where a line is wider."""
import fcntl
import os
import pty
import re
import struct
import sys
import termios

columns = int(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
shown = b""
try:
    while part := os.read(terminal, 65536):
        shown += part
except OSError:
    pass  # the end of the terminal's other side
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
text = re.sub(r"\033\[[0-9]*[A-Z]|\r", "", shown.decode())
print(text, end="")
wide = [line for line in text.splitlines() if len(line) > columns]
# A word that is wider than the terminal can't be broken.
wide = [line for line in wide if max(map(len, line.split())) < columns / 2]
if wide:
    sys.exit(f"wider than {columns} columns: {wide}")
sys.exit(status)
