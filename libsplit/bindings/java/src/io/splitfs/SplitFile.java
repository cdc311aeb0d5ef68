// SPDX-License-Identifier: Apache-2.0
package io.splitfs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.ClosedChannelException;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;

/** A file with a descriptor. Any thread may use it. Its close waits for nobody: the descriptor is closed behind the last call that is under way. */
public final class SplitFile implements AutoCloseable {
    private static final int O_WRONLY = 01;
    private static final int O_RDWR = 02;
    private static final int O_CREAT = 0100;
    private static final int O_EXCL = 0200;
    private static final int O_TRUNC = 01000;
    private static final int O_APPEND = 02000;
    private static final int O_CLOEXEC = 02000000;
    private static final int ENOENT = 2;
    private static final int EINTR = 4;
    private static final int SEEK_END = 2;

    private final Path path;
    private final int fd;
    private int users;
    private boolean closed;

    private SplitFile(Path path, int fd) {
        this.path = path;
        this.fd = fd;
    }

    /** Opens a file as a channel is: for reading where no option says otherwise. A directory can be opened so. */
    public static SplitFile open(Path path, OpenOption... options) throws IOException {
        final int flags = flags(Set.of(options));
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment name = arena.allocateFrom(path.toString());
            while (true) {
                try {
                    return new SplitFile(path, (int) Native.result("open " + path, e -> (long) (int) Native.OPEN.invokeExact(e, name, flags, 0666)));
                } catch (SplitFsException e) {
                    if (e.errno() == ENOENT) {
                        throw new NoSuchFileException(path.toString());
                    }
                    if (e.errno() != EINTR) {
                        throw e;
                    }
                }
            }
        }
    }

    private static int flags(Set<OpenOption> options) {
        final boolean append = options.contains(StandardOpenOption.APPEND);
        final boolean write = append || options.contains(StandardOpenOption.WRITE);
        int flags = O_CLOEXEC;
        if (write) {
            flags |= options.contains(StandardOpenOption.READ) ? O_RDWR : O_WRONLY;
        }
        for (OpenOption option : options) {
            if (!(option instanceof StandardOpenOption standard)) {
                throw new UnsupportedOperationException(option.toString());
            }
            flags |= switch (standard) {
                case READ, WRITE, SPARSE -> 0;
                case APPEND -> O_APPEND;
                case CREATE -> O_CREAT;
                case CREATE_NEW -> O_CREAT | O_EXCL;
                case TRUNCATE_EXISTING -> O_TRUNC;
                default -> throw new UnsupportedOperationException(option.toString());
            };
        }
        return flags;
    }

    /** A call with the descriptor. */
    @FunctionalInterface
    interface Use<T> {
        T with(int descriptor) throws IOException;
    }

    <T> T use(Use<T> call) throws IOException {
        final int descriptor = begin();
        try {
            return call.with(descriptor);
        } finally {
            end();
        }
    }

    private synchronized int begin() throws IOException {
        if (closed) {
            throw new ClosedChannelException();
        }
        users++;
        return fd;
    }

    private synchronized void end() {
        users--;
        if (closed && users == 0) {
            try {
                closeDescriptor();
            } catch (IOException e) {
                // Who closed the file has been told that it is closed.
            }
        }
    }

    private void closeDescriptor() throws IOException {
        Native.result("close " + path, e -> (long) (int) Native.CLOSE.invokeExact(e, fd));
    }

    /** A second close does nothing. Snapshots of the file stay. */
    @Override
    public synchronized void close() throws IOException {
        if (closed) {
            return;
        }
        closed = true;
        if (users == 0) {
            closeDescriptor();
        }
    }

    /** Reads until `to` is full or the file ends; returns how many bytes. */
    public long read(MemorySegment to, long offset) throws IOException {
        if (to.isNative()) {
            return transfer("read ", to.byteSize(), offset, (fd, done, e) ->
                    (long) Native.PREAD.invokeExact(e, fd, to.asSlice(done), to.byteSize() - done, offset + done));
        }
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment copy = arena.allocate(to.byteSize());
            final long n = read(copy, offset);
            MemorySegment.copy(copy, 0, to, 0, n);
            return n;
        }
    }

    /** Writes all of `from`. */
    public void write(MemorySegment from, long offset) throws IOException {
        if (from.isNative()) {
            transfer("write ", from.byteSize(), offset, (fd, done, e) ->
                    (long) Native.PWRITE.invokeExact(e, fd, from.asSlice(done), from.byteSize() - done, offset + done));
            return;
        }
        try (Arena arena = Arena.ofConfined()) {
            write(arena.allocate(from.byteSize()).copyFrom(from), offset);
        }
    }

    @FunctionalInterface
    private interface Transfer {
        long once(int fd, long done, MemorySegment errno) throws Throwable;
    }

    private long transfer(String name, long length, long offset, Transfer transfer) throws IOException {
        return use(descriptor -> {
            long done = 0;
            while (done < length) {
                final long at = done;
                try {
                    final long n = Native.result(name + path, e -> transfer.once(descriptor, at, e));
                    if (n == 0) {
                        break;
                    }
                    done += n;
                } catch (SplitFsException e) {
                    if (e.errno() != EINTR) {
                        throw e;
                    }
                }
            }
            return done;
        });
    }

    public long size() throws IOException {
        return use(d -> Native.result("lseek " + path, e -> (long) Native.LSEEK.invokeExact(e, d, 0L, SEEK_END)));
    }

    /** fsync(2). */
    public void force() throws IOException {
        use(d -> Native.result("fsync " + path, e -> (long) (int) Native.FSYNC.invokeExact(e, d)));
    }

    public void truncate(long size) throws IOException {
        use(d -> Native.result("ftruncate " + path, e -> (long) (int) Native.FTRUNCATE.invokeExact(e, d, size)));
    }

    @Override
    public String toString() {
        return path.toString();
    }
}
