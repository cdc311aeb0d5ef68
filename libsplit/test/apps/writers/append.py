# SPDX-License-Identifier: Apache-2.0
import os
import sys

fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
n = int(sys.argv[1])
while True:
    os.write(fd, b"%d %s %d\n" % (n, b"x" * (n * 7919 % 500), n))
    os.write(1, b"%d\n" % n)
    n += 1
