#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode a file of base64 into another one, from the first one's own memory.

usage: decode.py INPUT OUTPUT
"""
import binascii
import sys

import splitfs

CHUNK = 4 << 20  # characters, a multiple of 4: input without line breaks


def main(source, target):
    splitfs.flags(splitfs.COPY)
    with open(source, "rb") as f, open(target, "wb") as out, splitfs.peek(f) as data:
        for at in range(0, len(data), CHUNK):
            out.write(binascii.a2b_base64(data[at : at + CHUNK]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
