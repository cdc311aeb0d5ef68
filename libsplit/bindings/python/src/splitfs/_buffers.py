# SPDX-License-Identifier: Apache-2.0
"""Buffers that become parts of files without being copied."""

import ctypes
import os
import threading
import weakref

from ._library import check, descriptor, failure, lib


class Pool:
    """A pool of buffers, `size` bytes at most, of the volume that a directory or file is on.

    `directory` is a path, a descriptor, or has fileno(). It ends with close(), or when nobody has it or a buffer of it any more.
    """

    def __init__(self, directory, size):
        check(0, size)
        opened = isinstance(directory, (str, bytes, os.PathLike))
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC) if opened else descriptor(directory)
        try:
            self._number = lib.splitfs_pool_create(fd, size)
            if self._number < 0:
                raise failure(directory)
        finally:
            if opened:
                os.close(fd)
        self._end = weakref.finalize(self, lib.splitfs_pool_destroy, self._number)
        self._end.atexit = False

    def alloc(self, length, offset=0):
        """A Buffer of `length` bytes, meant for a file from `offset` on (modulo 4096). What it holds at first is anything."""
        check(offset, length)
        address = lib.splitfs_alloc(self._number, offset, length)
        if not address:
            raise failure()
        return Buffer(self, address, length)

    def close(self):
        """End the pool. OSError with EBUSY: it has buffers. A second call does nothing."""
        if not self._end.alive:
            return
        if lib.splitfs_pool_destroy(self._number) < 0:
            raise failure()
        self._end.detach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Memory:
    """The buffer's memory: it is given back when neither the Buffer nor a view of it is left, or by free()."""

    def __init__(self, pool, address):
        self.pool = pool
        self.end = weakref.finalize(self, lib.splitfs_free, address)
        self.end.atexit = False


class Buffer:
    """Memory that patch() makes a part of a file; of Pool.alloc()."""

    def __init__(self, pool, address, length):
        self._address, self._length, self._pid = address, length, os.getpid()
        self._memory = _Memory(pool, address)
        self._lock = threading.Lock()
        self._patched = False
        self._view = self._array = None
        self._show()

    def _show(self):
        array = self._array and self._array()
        if array is None:
            array = (ctypes.c_char * self._length).from_address(self._address)
            array.memory = self._memory
            self._array = weakref.ref(array)
        self._view = memoryview(array).cast("B")
        if self._patched:
            self._view = self._view.toreadonly()

    def _hide(self):
        """From here on nobody has a view of it."""
        self._view.release()
        # A slice, or what was made of one, has the array.
        if self._array() is not None:
            self._show()
            raise BufferError("the buffer has views that are in use")

    @property
    def view(self):
        """A memoryview of it, that can be stored to until patch(); patch() and free() release it."""
        if self._view is None:
            raise ValueError("the buffer has been freed")
        if self._pid != os.getpid():
            raise ValueError("the buffer is a parent's")
        return self._view

    def __len__(self):
        return self._length

    def patch(self, file, offset, length=None):
        """The first `length` bytes become the file's from `offset` on; returns how many.

        BufferError: there is a slice of `view`, by which the buffer could be stored to. Afterwards `view` is a new one, read-only. After an error
        the buffer can be stored to and patched again.
        """
        length = self._length if length is None else length
        check(offset, length)
        fd = descriptor(file)
        with self._lock:
            if self._view is None:
                raise ValueError("the buffer has been freed")
            if not self._patched:
                self._hide()
            try:
                n = lib.splitfs_patch(fd, self._address, length, offset)
                if n < 0:
                    raise failure(file)
                self._patched = self._patched or n > 0
            finally:
                if self._array() is None:
                    self._show()
        return n

    def free(self):
        """Give the memory back. BufferError: there is a slice of `view`. A second call does nothing."""
        with self._lock:
            if self._view is None:
                return
            self._hide()
            if lib.splitfs_free(self._address) < 0:
                error = failure()
                self._show()
                raise error
            self._view = None
            self._memory.end.detach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()
