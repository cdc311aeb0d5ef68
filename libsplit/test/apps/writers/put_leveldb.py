# SPDX-License-Identifier: Apache-2.0
import os
import sys

import plyvel

db = plyvel.DB("db", create_if_missing=True, write_buffer_size=64 << 10)
n = int(sys.argv[1])
while True:
    db.put(b"%08d" % n, b"%d " % n * (n * 7919 % 100), sync=True)
    os.write(1, b"%d\n" % n)
    n += 1
