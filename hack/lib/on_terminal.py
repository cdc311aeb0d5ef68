# SPDX-License-Identifier: Apache-2.0
"""Commands on a terminal of a given size, for tests that look at what a person sees."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios


def on_terminal(columns, command, lines=50):
    """Runs the command on a terminal that is so wide and returns its exit status and all that it wrote, bytes."""
    # The other end stays open here: what is still on its way when the last process closes it would be lost now and then.
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
        shown, ended = b"", False
        while not ended:
            ended = process.poll() is not None
            while select.select([master], [], [], 0.3 if ended else 0.05)[0]:
                shown += os.read(master, 65536)
    os.close(master)
    os.close(slave)
    return process.returncode, shown
