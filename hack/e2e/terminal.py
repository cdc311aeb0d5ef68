# SPDX-License-Identifier: Apache-2.0
"""terminal.py COLUMNS COMMAND...: runs it on a terminal of so many columns and prints what it shows, or fails where a line is wider."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios

columns = int(sys.argv[1])
# The other end stays open here: what is still on its way when the last process closes it would be lost now and then.
terminal, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
with subprocess.Popen(
    sys.argv[2:], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
) as process:
    shown, ended = b"", False
    while not ended:
        ended = process.poll() is not None
        while select.select([terminal], [], [], 0.3 if ended else 0.05)[0]:
            shown += os.read(terminal, 65536)
status = process.returncode
text = re.sub(r"\033\[[0-9]*[A-Z]|\r", "", shown.decode())
print(text, end="")
wide = [line for line in text.splitlines() if len(line) > columns]
# A word that is wider than the terminal can't be broken.
wide = [line for line in wide if max(map(len, line.split())) < columns / 2]
if wide:
    sys.exit(f"wider than {columns} columns: {wide}")
sys.exit(status)
