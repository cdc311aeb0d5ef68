# SPDX-License-Identifier: Apache-2.0
"""The Python binding in the working directory, plainly (with copies) and under the library in every mode."""

import base64
import errno
import gc
import os
import subprocess
import sys

import splitfs

SERVED = "SPLITFS_CONFIG" in os.environ
EXAMPLE = os.path.join(os.path.dirname(__file__), "../../python/examples/decode.py")


def pattern(seed, n):
    return bytes((i * 31 + seed * 7 + (i >> 8)) & 255 for i in range(n))


def fails(error, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == error, e
    else:
        raise AssertionError(f"no error {error}")


def views(f, was):
    with splitfs.peek(f) as data:
        assert data.readonly and data.format == "B" and bytes(data) == was
        try:
            data[0] = 1
        except TypeError:
            pass
        else:
            raise AssertionError("a store went through")
    for use in (lambda: data[0], lambda: bytes(data)):
        try:
            use()
        except ValueError:
            continue
        raise AssertionError("a released view can be used")
    assert bytes(splitfs.peek(f.fileno(), 5, 10)) == was[5:15]
    assert bytes(splitfs.peek(f, len(was) - 3)) == was[-3:]
    assert len(splitfs.peek(f, len(was) + 1)) == 0


def outlives(f, was):
    """A slice keeps the memory, also when the view is released and the file overwritten and deleted."""
    with splitfs.peek(f) as data:
        part = data[1000:9000]
    os.pwrite(f.fileno(), pattern(2, len(was)), 0)
    os.fsync(f.fileno())
    os.unlink(f.name)
    f.close()
    gc.collect()
    assert bytes(part) == was[1000:9000]


def errors():
    with open("out", "wb") as out:
        fails(errno.EBADF, splitfs.peek, out)
    for bad in ((0, -1), (0, 0, -5), (0, 1 << 63)):
        try:
            splitfs.peek(*bad)
        except ValueError:
            continue
        raise AssertionError(bad)
    with open(sys.executable, "rb") as f:
        was = splitfs.flags(0)
        fails(errno.ENOTSUP, splitfs.peek, f)
        assert splitfs.flags(splitfs.COPY) == 0
        assert bytes(splitfs.peek(f, 0, 4)) == b"\x7fELF"
        splitfs.flags(was)


def many():
    """More than there may be at once: each is given back with its view."""
    content = pattern(3, 100000)
    with open("many", "w+b") as f:
        f.write(content)
        f.flush()
        for i in range(70000):
            assert splitfs.peek(f, i, 1)[0] == content[i]


def example():
    content = pattern(4, 300000)
    with open("coded", "wb") as f:
        f.write(base64.b64encode(content))
    subprocess.run([sys.executable, EXAMPLE, "coded", "decoded"], check=True)
    with open("decoded", "rb") as f:
        assert f.read() == content


def main():
    splitfs.flags(0 if SERVED else splitfs.COPY)
    was = pattern(1, 123457)
    with open("file", "w+b") as f:
        f.write(was)
        f.flush()
        views(f, was)
        outlives(f, was)
    errors()
    many()
    example()


main()
