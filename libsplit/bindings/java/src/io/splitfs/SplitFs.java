// SPDX-License-Identifier: Apache-2.0
package io.splitfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** Snapshots of files, and calls that change several ranges in one step. */
public final class SplitFs {
    /** A flag: where a file can't be served without a copy it is copied, instead of {@code ENOTSUP}. */
    public static final int COPY = 1;

    /** As a length: up to the end of the file. */
    public static final long TO_END = Long.MAX_VALUE;

    private SplitFs() {}

    /** Sets the flags of the process, and returns what they were. */
    public static int flags(int flags) {
        try {
            return (int) Native.result("flags", e -> (long) (int) Native.FLAGS.invokeExact(e, flags));
        } catch (SplitFsException e) {
            throw new IllegalStateException(e);
        }
    }

    /**
     * A snapshot of `length` bytes of the file from `offset` on, or of as many as there are: a read-only segment, which stays what it is
     * whatever becomes of the file, until the arena is closed.
     */
    public static MemorySegment peek(SplitFile file, long offset, long length, Arena arena) throws IOException {
        return file.use(fd -> {
            try (Arena ours = Arena.ofConfined()) {
                final MemorySegment got = ours.allocate(JAVA_LONG);
                final MemorySegment p = Native.address(
                        "peek " + file, e -> (MemorySegment) Native.PEEK.invokeExact(e, fd, offset, length, got));
                return snapshot(p, got.get(JAVA_LONG, 0), arena);
            }
        });
    }

    /** The same as pieces, so many of them at most; none at the end of the file. */
    public static List<MemorySegment> peekv(SplitFile file, long offset, long length, int pieces, Arena arena) throws IOException {
        if (pieces > 1 << 16) {
            throw new IllegalArgumentException(pieces + " pieces");
        }
        return file.use(fd -> {
            try (Arena ours = Arena.ofConfined()) {
                final MemorySegment got = ours.allocate(JAVA_LONG);
                final MemorySegment iov = ours.allocate(Native.IOVEC, Math.max(pieces, 1));
                final int n = (int) Native.result(
                        "peekv " + file, e -> (long) (int) Native.PEEKV.invokeExact(e, fd, offset, length, iov, pieces, got));
                final List<MemorySegment> list = new ArrayList<>(n);
                for (int i = 0; i < n; i++) {
                    final long at = i * Native.IOVEC.byteSize();
                    list.add(snapshot(iov.get(ADDRESS, at), iov.get(JAVA_LONG, at + ADDRESS.byteSize()), arena));
                }
                return list;
            }
        });
    }

    private static MemorySegment snapshot(MemorySegment p, long length, Arena arena) {
        if (length == 0) {
            unpeek(p);
            return MemorySegment.NULL.asReadOnly();
        }
        try {
            return p.reinterpret(length, arena, SplitFs::unpeek).asReadOnly();
        } catch (RuntimeException e) {
            unpeek(p); // The arena is closed, or another thread's.
            throw e;
        }
    }

    private static void unpeek(MemorySegment p) {
        try {
            Native.result("unpeek", e -> (long) (int) Native.UNPEEK.invokeExact(e, p));
        } catch (SplitFsException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A part of a file, and what is to be there. */
    public record Range(SplitFile file, long offset, MemorySegment data) {}

    /** Writes all ranges in one step, or nothing; in strict mode alone. */
    public static void writeAtomic(List<Range> ranges) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            writeAtomic(ranges, 0, arena.allocate(Native.RANGE, Math.max(ranges.size(), 1)), arena);
        }
    }

    /** From range `i` on: each file stays open for the call. */
    private static void writeAtomic(List<Range> ranges, int i, MemorySegment array, Arena arena) throws IOException {
        if (i == ranges.size()) {
            Native.result("write_atomic", e -> (long) (int) Native.WRITE_ATOMIC.invokeExact(e, array, i));
            return;
        }
        final Range range = ranges.get(i);
        /* A copy: C has the address, which does not keep the memory, and another thread may close its arena, or nobody have it any more. */
        final MemorySegment data = arena.allocate(range.data().byteSize()).copyFrom(range.data());
        final MemorySegment to = array.asSlice(i * Native.RANGE.byteSize(), Native.RANGE);
        range.file().use(fd -> {
            to.set(JAVA_INT, 0, fd);
            to.set(JAVA_LONG, 8, range.offset());
            to.set(ADDRESS, 16, data);
            to.set(JAVA_LONG, 24, data.byteSize());
            writeAtomic(ranges, i + 1, array, arena);
            return null;
        });
    }

    /** Exchanges `length` bytes of two files of a volume in one step. */
    public static void swap(SplitFile file1, long offset1, SplitFile file2, long offset2, long length) throws IOException {
        file1.use(fd1 -> file2.use(fd2 ->
                Native.result("swap", e -> (long) (int) Native.SWAP.invokeExact(e, fd1, offset1, fd2, offset2, length))));
    }
}
