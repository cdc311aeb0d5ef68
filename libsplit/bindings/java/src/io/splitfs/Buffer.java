// SPDX-License-Identifier: Apache-2.0
package io.splitfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.function.Supplier;

/** Memory that {@link #patch} makes a part of a file. */
public final class Buffer implements AutoCloseable {
    private final MemorySegment memory;
    private final long length;
    private final Supplier<Arena> arenas;
    private boolean patched;
    private Arena arena; // null: it has been given back
    private MemorySegment segment;

    Buffer(MemorySegment memory, long length, Supplier<Arena> arenas) {
        this.memory = memory;
        this.length = length;
        this.arenas = arenas;
        show();
    }

    private void show() {
        arena = arenas.get();
        segment = memory.reinterpret(length, arena, null);
        if (patched) {
            segment = segment.asReadOnly();
        }
    }

    /**
     * The bytes, which may be stored to until the patch, and read until the close. Both end this segment and all slices of it; after a patch there is
     * a new one.
     */
    public synchronized MemorySegment segment() {
        if (arena == null) {
            throw new IllegalStateException("the buffer has been closed");
        }
        return segment;
    }

    /** The first `bytes` of it become the file's from `offset` on; returns how many. After an error the buffer is as it was. */
    public synchronized long patch(SplitFile file, long offset, long bytes) throws IOException {
        segment();
        return file.use(fd -> {
            /* Another thread that is in the middle of a store makes this fail. */
            arena.close();
            try {
                final long n = Native.result("patch " + file, e -> (long) Native.PATCH.invokeExact(e, fd, memory, bytes, offset));
                patched = patched || n > 0;
                return n;
            } finally {
                show();
            }
        });
    }

    /** Gives it back. A second close does nothing. */
    @Override
    public synchronized void close() throws SplitFsException {
        if (arena == null) {
            return;
        }
        arena.close();
        arena = null;
        segment = null;
        Native.result("free", e -> (long) (int) Native.FREE.invokeExact(e, memory));
    }
}
