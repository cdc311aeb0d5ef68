# SPDX-License-Identifier: Apache-2.0
"""All calls in the working directory: TEST_MODE is plain (what is not served is copied, or refused) or the mode of the volume."""

import array
import base64
import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys

import splitfs

MODE = os.environ["TEST_MODE"]
SERVED = MODE != "plain"
EXAMPLE = os.path.join(os.path.dirname(__file__), "../examples/decode.py")
BLOCK = 4096


def pattern(seed, n):
    return bytes((i * 31 + seed * 7 + (i >> 8)) & 255 for i in range(n))


@contextlib.contextmanager
def raises(kind, number=None):
    try:
        yield
    except kind as e:
        assert number is None or e.errno == number, e
    else:
        raise AssertionError(f"no {kind.__name__} {number}")


def fails(number, call, *args):
    with raises(OSError, number):
        call(*args)


@contextlib.contextmanager
def new_file(name, content=b""):
    with open(name, "w+b", buffering=0) as f:
        f.write(content)
        yield f


def content_of(f):
    return os.pread(f.fileno(), 1 << 24, 0)


def status_of(child):
    """What a child ends with that calls this."""
    pid = os.fork()
    if pid == 0:
        try:
            child()
            os._exit(0)
        except BaseException as e:
            print("child:", repr(e), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def views():
    was = pattern(1, 123457)
    with new_file("views", was) as f:
        with splitfs.peek(f) as data:
            assert data.readonly and data.format == "B" and bytes(data) == was
            with raises(TypeError):
                data[0] = 1
        for use in (lambda: data[0], lambda: bytes(data)):
            with raises(ValueError):
                use()
        data.release()  # a second time
        assert bytes(splitfs.peek(f.fileno(), 5, 10)) == was[5:15]
        assert bytes(splitfs.peek(f, len(was) - 3)) == was[-3:]
        assert len(splitfs.peek(f, len(was) + 1)) == 0
        assert b"".join(splitfs.peekv(f, 3, 50000)) == was[3:50003]
        assert splitfs.peekv(f, len(was)) == []


def outlives():
    """A slice keeps the memory, also when the view is released and the file overwritten and deleted."""
    was = pattern(1, 123457)
    with new_file("file", was) as f:
        with splitfs.peek(f) as data:
            part = data[1000:9000]
        pieces = splitfs.peekv(f, 5000, 3000)
        os.pwrite(f.fileno(), pattern(2, len(was)), 0)
        os.fsync(f.fileno())
        os.unlink(f.name)
    gc.collect()
    assert bytes(part) == was[1000:9000] and b"".join(pieces) == was[5000:8000]


def snapshot_errors():
    with new_file("refused", pattern(1, 100)) as f, open("refused", "wb") as out:
        fails(errno.EBADF, splitfs.peek, out)
        fails(errno.EBADF, splitfs.peekv, out)
        for bad in ((f, -1), (f, 0, -5), (f, 0, 1 << 63), (f, 1 << 63)):
            with raises(ValueError):
                splitfs.peek(*bad)
            with raises(ValueError):
                splitfs.peekv(*bad)
        with raises(ValueError):
            splitfs.peekv(f, pieces=0)
        # Cut to 32 bits it would be this file.
        with raises(ValueError):
            splitfs.peek((1 << 32) + f.fileno(), 0, 5)
    fails(errno.EBADF, splitfs.peek, 999)
    with open(sys.executable, "rb") as f:
        was = splitfs.flags(0)
        fails(errno.ENOTSUP, splitfs.peek, f)
        assert splitfs.flags(splitfs.COPY) == 0
        assert bytes(splitfs.peek(f, 0, 4)) == b"\x7fELF"
        splitfs.flags(was)


def many():
    """More than there may be at once: each is given back with its view."""
    n = {"plain": 4200, "posix": 66000}.get(MODE, 100)
    content = pattern(3, n)
    with new_file("many", content) as f:
        for i in range(n):
            assert splitfs.peek(f, i, 1)[0] == content[i]


def forked():
    """The child has the snapshot and gives back its own; it has no buffers."""
    was = pattern(5, 3 * BLOCK)
    with new_file("forked", was) as f, splitfs.Pool(".", 4 * BLOCK) as pool, pool.alloc(BLOCK) as buffer:
        view = splitfs.peek(f)

        def child():
            os.pwrite(f.fileno(), pattern(6, len(was)), 0)
            assert bytes(view) == was
            view.release()
            with raises(ValueError):
                buffer.view
            fails(errno.EINVAL, buffer.patch, f, 0)
            fails(errno.EINVAL, pool.alloc, 1)

        buffer.view[:] = pattern(7, BLOCK)
        assert status_of(child) == 0
        assert bytes(view) == was and content_of(f) == pattern(6, len(was))
        assert buffer.patch(f, BLOCK) == BLOCK


def stores():
    """What a store through a pointer to a snapshot is: the end of the process, and nothing is lost."""
    import ctypes

    was = pattern(5, 3 * BLOCK)
    with new_file("stored", was) as f:
        view = splitfs.peek(f)
        child = status_of(lambda: ctypes.memset(ctypes.addressof(view.obj), 0, 1))
        assert child == -signal.SIGSEGV, child
        assert bytes(view) == was and content_of(f) == was


def patches():
    with new_file("patched", pattern(1, 4 * BLOCK)) as f, splitfs.Pool(".", 64 * BLOCK) as pool:
        with pool.alloc(2 * BLOCK, BLOCK) as buffer:
            view = buffer.view
            assert len(buffer) == len(view) == 2 * BLOCK and not view.readonly
            view[:] = pattern(2, 2 * BLOCK)
            assert buffer.patch(f, BLOCK) == 2 * BLOCK
            with raises(ValueError):
                view[0] = 1
            assert buffer.view.readonly and bytes(buffer.view) == pattern(2, 2 * BLOCK)
            with raises(TypeError):
                buffer.view[0] = 1
            expected = pattern(1, BLOCK) + pattern(2, 2 * BLOCK) + pattern(1, 4 * BLOCK)[3 * BLOCK :]
            assert content_of(f) == expected
            fails(errno.EINVAL, buffer.patch, f, BLOCK)
            os.pwrite(f.fileno(), b"x" * BLOCK, BLOCK)
            assert bytes(buffer.view) == pattern(2, 2 * BLOCK)
        buffer.free()
        with raises(ValueError):
            buffer.view
        with raises(ValueError):
            buffer.patch(f, 0)
        # Unaligned, at any offset that is congruent.
        with pool.alloc(5000, 77) as buffer:
            buffer.view[:] = pattern(3, 5000)
            assert buffer.patch(f, 10 * BLOCK + 77, 4500) == 4500
        assert content_of(f)[10 * BLOCK + 77 :] == pattern(3, 5000)[:4500]


def slices():
    """A slice of a buffer could be stored to after the patch: there is none until it has gone."""
    with new_file("slices") as f, splitfs.Pool(".", 64 * BLOCK) as pool:
        buffer = pool.alloc(BLOCK)
        numbers = array.array("B", pattern(4, BLOCK))
        part = buffer.view[10:20]
        part[:] = b"0123456789"
        with raises(BufferError):
            buffer.patch(f, 0)
        with raises(BufferError):
            buffer.free()
        assert content_of(f) == b"" and not buffer.view.readonly
        part.release()
        buffer.view[20:] = memoryview(numbers)[20:]
        assert buffer.patch(f, 0) == BLOCK
        part = buffer.view[10:20]
        # The memory stays as long as somebody looks at it.
        with raises(BufferError):
            buffer.free()
        fails(errno.EBUSY, pool.close)
        del buffer
        gc.collect()
        assert bytes(part) == b"0123456789" and content_of(f)[20:] == bytes(numbers)[20:]
        del part
        gc.collect()


def pool_errors():
    fails(errno.EBADF, splitfs.Pool, 999, BLOCK)
    fails(errno.EINVAL, splitfs.Pool, ".", 0)
    fails(errno.ENOENT, splitfs.Pool, "not-there", BLOCK)
    was = splitfs.flags(0)
    fails(errno.ENOTSUP, splitfs.Pool, "/proc/self", BLOCK)
    splitfs.flags(was)
    pool = splitfs.Pool(".", 4 * BLOCK)
    for bad in ((0, 0), (4 * BLOCK + 1, 0), (4 * BLOCK, 1)):
        fails(errno.ENOSPC if bad[0] else errno.EINVAL, pool.alloc, *bad)
    for bad in ((-1, 0), (1, -1), (1 << 63, 0)):
        with raises(ValueError):
            pool.alloc(*bad)
    pool.close()
    pool.close()
    fails(errno.EINVAL, pool.alloc, 1)


def patch_errors():
    """After each the buffer is as it was."""
    with new_file("errors", pattern(1, BLOCK)) as f, splitfs.Pool(".", 4 * BLOCK) as pool, pool.alloc(BLOCK) as buffer:
        buffer.view[:] = pattern(2, BLOCK)
        with open("errors", "rb") as source, open("errors", "ab") as log:
            fails(errno.EBADF, buffer.patch, source, 0)
            fails(errno.EINVAL, buffer.patch, log, 0)
        fails(errno.EBADF, buffer.patch, 999, 0)
        fails(errno.EINVAL, buffer.patch, f, 1)
        fails(errno.EINVAL, buffer.patch, f, 0, BLOCK + 1)
        with raises(ValueError):
            buffer.patch(f, -1)
        if SERVED:
            foreign = os.open("/dev/shm", os.O_RDWR | os.O_TMPFILE, 0o600)
            fails(errno.EXDEV, buffer.patch, foreign, 0)
            os.close(foreign)
        assert content_of(f) == pattern(1, BLOCK) and bytes(buffer.view) == pattern(2, BLOCK)
        buffer.view[0] = 9
        assert buffer.patch(f, 0) == BLOCK and content_of(f) == b"\x09" + pattern(2, BLOCK)[1:]


def together():
    with new_file("one", pattern(1, 3 * BLOCK)) as one, new_file("two", pattern(2, 3 * BLOCK)) as two:
        ranges = [(one, 5, b"first"), (two, BLOCK, bytearray(b"second")), (one.fileno(), 2 * BLOCK, memoryview(b"third"))]
        if MODE != "strict":
            fails(errno.ENOTSUP, splitfs.write_atomic, ranges)
            assert content_of(one) == pattern(1, 3 * BLOCK)
        else:
            splitfs.write_atomic(ranges)
            assert content_of(one)[5:10] == b"first" and content_of(one)[2 * BLOCK :][:5] == b"third"
            assert content_of(two)[BLOCK:][:6] == b"second"
        fails(errno.EINVAL, splitfs.write_atomic, [])
        with raises(ValueError):
            splitfs.write_atomic([(one, -1, b"x")])
        with raises(TypeError):
            splitfs.write_atomic([(one, 0, "text")])


def swaps():
    with new_file("left", pattern(1, 3 * BLOCK)) as left, new_file("right", pattern(2, 3 * BLOCK)) as right:
        if not SERVED:
            fails(errno.ENOTSUP, splitfs.swap, left, 0, right, 0, BLOCK)
            return
        splitfs.swap(left, 0, right, BLOCK, 2 * BLOCK)
        assert content_of(left) == pattern(2, 3 * BLOCK)[BLOCK:] + pattern(1, 3 * BLOCK)[2 * BLOCK :]
        assert content_of(right) == pattern(2, BLOCK) + pattern(1, 2 * BLOCK)
        fails(errno.EINVAL, splitfs.swap, left, 0, left, BLOCK, BLOCK)
        fails(errno.EINVAL, splitfs.swap, left, 0, right, 3 * BLOCK, BLOCK)
        with raises(ValueError):
            splitfs.swap(left, 0, right, -1, BLOCK)


def example():
    content = pattern(4, 300000)
    with open("coded", "wb") as f:
        f.write(base64.b64encode(content))
    subprocess.run([sys.executable, EXAMPLE, "coded", "decoded"], check=True)
    with open("decoded", "rb") as f:
        assert f.read() == content


def main():
    splitfs.flags(0 if SERVED else splitfs.COPY)
    for test in (
        views,
        outlives,
        snapshot_errors,
        many,
        forked,
        stores,
        patches,
        slices,
        pool_errors,
        patch_errors,
        together,
        swaps,
        example,
    ):
        try:
            test()
        except BaseException:
            print(f"calls.py: {test.__name__}", file=sys.stderr)
            raise


main()
