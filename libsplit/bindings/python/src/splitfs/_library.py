# SPDX-License-Identifier: Apache-2.0
"""libsplitfs.so, and what all calls have in common."""

import ctypes
import os
from ctypes import POINTER, c_int, c_longlong, c_size_t, c_ssize_t, c_uint, c_void_p

COPY = 0x1

SSIZE_MAX = c_size_t(-1).value >> 1


class Iovec(ctypes.Structure):
    """struct iovec"""

    _fields_ = [("base", c_void_p), ("len", c_size_t)]


class Range(ctypes.Structure):
    """struct splitfs_range"""

    _fields_ = [("fd", c_int), ("off", c_longlong), ("buf", ctypes.c_char_p), ("len", c_size_t)]


lib = ctypes.CDLL(os.environ.get("SPLITFS_LIBRARY", "libsplitfs.so.1"), use_errno=True)
for _name, _result, *_arguments in (
    ("flags", c_uint, c_uint),
    ("peek", c_void_p, c_int, c_longlong, c_size_t, POINTER(c_size_t)),
    ("peekv", c_int, c_int, c_longlong, c_size_t, POINTER(Iovec), c_int, POINTER(c_size_t)),
    ("unpeek", c_int, c_void_p),
    ("pool_create", c_int, c_int, c_size_t),
    ("pool_destroy", c_int, c_int),
    ("alloc", c_void_p, c_int, c_longlong, c_size_t),
    ("free", c_int, c_void_p),
    ("patch", c_ssize_t, c_int, c_void_p, c_size_t, c_longlong),
    ("write_atomic", c_int, POINTER(Range), c_int),
    ("swap", c_int, c_int, c_longlong, c_int, c_longlong, c_size_t),
):
    _function = getattr(lib, "splitfs_" + _name)
    _function.restype = _result
    _function.argtypes = _arguments


def flags(new):
    """Set the flags of the process (0 or COPY) and return what they were."""
    return lib.splitfs_flags(new)


def failure(file=None):
    """The OSError of a call that has just failed."""
    error = ctypes.get_errno()
    return OSError(error, os.strerror(error), None if isinstance(file, int) else getattr(file, "name", None))


def descriptor(file):
    """The descriptor of something that is one, or has one. Cut to fit its type it would be another file's."""
    number = file if isinstance(file, int) else file.fileno()
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError("a descriptor is a number of 32 bits")
    return number


def check(offset, length):
    """What C would cut to fit its types is an error."""
    if not 0 <= length <= SSIZE_MAX or not 0 <= offset <= SSIZE_MAX:
        raise ValueError("offset and length must be positive numbers of 63 bits")
