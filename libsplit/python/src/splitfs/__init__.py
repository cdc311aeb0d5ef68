# SPDX-License-Identifier: Apache-2.0
"""Files of SplitFS volumes without copying: splitfs_peek(3) as memoryviews."""

import ctypes
import os
import weakref

__all__ = ["COPY", "flags", "peek"]

COPY = 0x1

_SSIZE_MAX = ctypes.c_size_t(-1).value >> 1

_lib = ctypes.CDLL(os.environ.get("SPLITFS_LIBRARY", "libsplitfs.so.1"), use_errno=True)
_lib.splitfs_peek.restype = ctypes.c_void_p
_lib.splitfs_peek.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
_lib.splitfs_unpeek.restype = ctypes.c_int
_lib.splitfs_unpeek.argtypes = [ctypes.c_void_p]
_lib.splitfs_flags.restype = ctypes.c_uint
_lib.splitfs_flags.argtypes = [ctypes.c_uint]


def flags(new):
    """Set the flags of the process (0 or COPY) and return what they were."""
    return _lib.splitfs_flags(new)


def peek(file, offset=0, length=None):
    """A snapshot of the file as a read-only memoryview, without a copy where that is possible.

    The memory is given back with the last view of it: every slice, and whatever else looks at the view, has a reference to the array below, whose end gives
    it back.
    """
    fd = file if isinstance(file, int) else file.fileno()
    if length is None:
        length = _SSIZE_MAX
    if not 0 <= length <= _SSIZE_MAX or not 0 <= offset < 1 << 63:
        raise ValueError("offset and length must be positive numbers of 63 bits")
    got = ctypes.c_size_t()
    address = _lib.splitfs_peek(fd, offset, length, ctypes.byref(got))
    if not address:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), None if isinstance(file, int) else getattr(file, "name", None))
    if got.value == 0:
        _lib.splitfs_unpeek(address)
        return memoryview(b"")
    memory = (ctypes.c_char * got.value).from_address(address)
    weakref.finalize(memory, _lib.splitfs_unpeek, address).atexit = False
    return memoryview(memory).cast("B").toreadonly()
