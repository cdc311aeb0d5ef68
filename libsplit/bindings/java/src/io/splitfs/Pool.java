// SPDX-License-Identifier: Apache-2.0
package io.splitfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.function.Supplier;

/** A pool of buffers that become parts of files without being copied. */
public final class Pool implements AutoCloseable {
    private final int number;
    private boolean closed;

    private Pool(int number) {
        this.number = number;
    }

    /** A pool of so many bytes at most, of the volume that a directory or file is on. */
    public static Pool of(Path directory, long size) throws IOException {
        try (SplitFile file = SplitFile.open(directory)) {
            return file.use(fd ->
                    new Pool((int) Native.result("pool_create " + directory, e -> (long) (int) Native.POOL_CREATE.invokeExact(e, fd, size))));
        }
    }

    /** Ends the pool; {@code EBUSY} while it has buffers. A second close does nothing. */
    @Override
    public synchronized void close() throws SplitFsException {
        if (!closed) {
            Native.result("pool_destroy", e -> (long) (int) Native.POOL_DESTROY.invokeExact(e, number));
            closed = true;
        }
    }

    /** A buffer for this thread, which may be patched at offsets that are `offset` modulo 4096. What it holds at first is anything. */
    public Buffer alloc(long offset, long length) throws SplitFsException {
        return alloc(offset, length, Arena::ofConfined);
    }

    /** The same for any thread. Its patch and its close take microseconds more, in which all threads are asked. */
    public Buffer allocShared(long offset, long length) throws SplitFsException {
        return alloc(offset, length, Arena::ofShared);
    }

    private synchronized Buffer alloc(long offset, long length, Supplier<Arena> arenas) throws SplitFsException {
        if (closed) {
            throw new SplitFsException("alloc", SplitFsException.EINVAL);
        }
        return new Buffer(Native.address("alloc", e -> (MemorySegment) Native.ALLOC.invokeExact(e, number, offset, length)), length, arenas);
    }
}
