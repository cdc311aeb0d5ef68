# SPDX-License-Identifier: Apache-2.0
"""Snapshots of files, and calls that change several ranges in one step."""

import ctypes
import weakref

from ._library import SSIZE_MAX, Iovec, Range, check, descriptor, failure, lib


def _snapshot(address, length):
    """The memory is given back with the last view of it: every slice, and whatever else looks at the view, has a reference to the array."""
    memory = (ctypes.c_char * length).from_address(address)
    weakref.finalize(memory, lib.splitfs_unpeek, address).atexit = False
    return memoryview(memory).cast("B").toreadonly()


def peek(file, offset=0, length=None):
    """A snapshot of the file as a read-only memoryview, without a copy where that is possible."""
    length = SSIZE_MAX if length is None else length
    check(offset, length)
    got = ctypes.c_size_t()
    address = lib.splitfs_peek(descriptor(file), offset, length, ctypes.byref(got))
    if not address:
        raise failure(file)
    if got.value == 0:
        lib.splitfs_unpeek(address)
        return memoryview(b"")
    return _snapshot(address, got.value)


def peekv(file, offset=0, length=None, pieces=16):
    """The same as a list of memoryviews, `pieces` at most, which is empty at the end of the file."""
    length = SSIZE_MAX if length is None else length
    check(offset, length)
    if not 0 < pieces < 1 << 16:
        raise ValueError("pieces must be a positive number of 16 bits")
    got = ctypes.c_size_t()
    iov = (Iovec * pieces)()
    n = lib.splitfs_peekv(descriptor(file), offset, length, iov, pieces, ctypes.byref(got))
    if n < 0:
        raise failure(file)
    return [_snapshot(iov[i].base, iov[i].len) for i in range(n)]


def swap(file1, offset1, file2, offset2, length):
    """Exchange ranges of two files of a volume in one step."""
    check(offset1, length)
    check(offset2, length)
    if lib.splitfs_swap(descriptor(file1), offset1, descriptor(file2), offset2, length) < 0:
        raise failure(file1)


def write_atomic(ranges):
    """Write all of (file, offset, data), ... in one step, or nothing; in strict mode alone."""
    ranges = [(descriptor(file), offset, bytes(memoryview(data))) for file, offset, data in ranges]
    for _, offset, data in ranges:
        check(offset, len(data))
    array = (Range * len(ranges))(*(Range(fd, offset, data, len(data)) for fd, offset, data in ranges))
    if lib.splitfs_write_atomic(array, len(ranges)) < 0:
        raise failure()
