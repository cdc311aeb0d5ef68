# SPDX-License-Identifier: Apache-2.0
import os
import sys

import lmdb

env = lmdb.open("db", map_size=64 << 20, writemap=len(sys.argv) > 2)
n = int(sys.argv[1])
while True:
    with env.begin(write=True) as t:
        for part in (b"a", b"b"):
            t.put(part + b"%08d" % (n % 5000), b"%d " % n * (n * 7919 % 100 + 1))
    os.write(1, b"%d\n" % n)
    n += 1
