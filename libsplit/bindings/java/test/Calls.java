// SPDX-License-Identifier: Apache-2.0

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import io.splitfs.Buffer;
import io.splitfs.Pool;
import io.splitfs.SplitFile;
import io.splitfs.SplitFs;
import io.splitfs.SplitFsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.Callable;

/** All calls in the working directory: TEST_MODE is plain (what is not served is copied, or refused) or the mode of the volume. */
public final class Calls {
    private static final String MODE = System.getenv("TEST_MODE");
    private static final boolean SERVED = !"plain".equals(MODE);
    private static final int BLOCK = 4096;

    private Calls() {}

    @FunctionalInterface
    private interface Body {
        void run() throws Exception;
    }

    private static byte[] pattern(int seed, int n) {
        final byte[] b = new byte[n];
        for (int i = 0; i < n; i++) {
            b[i] = (byte) (i * 31 + seed * 7 + (i >> 8));
        }
        return b;
    }

    private static void check(boolean what, String why) {
        if (!what) {
            throw new AssertionError(why);
        }
    }

    private static void same(byte[] got, byte[] want) {
        check(Arrays.equals(got, want), got.length + " bytes are not the " + want.length + " that there should be");
    }

    private static void same(MemorySegment got, byte[] want) {
        same(got.toArray(JAVA_BYTE), want);
    }

    private static <T extends Throwable> T raises(Class<T> kind, Body body) {
        try {
            body.run();
        } catch (Throwable e) {
            if (kind.isInstance(e)) {
                return kind.cast(e);
            }
            throw new AssertionError("instead of " + kind, e);
        }
        throw new AssertionError("no " + kind);
    }

    private static void fails(int errno, Body body) {
        final SplitFsException e = raises(SplitFsException.class, body);
        check(e.errno() == errno, e + " instead of " + errno);
    }

    private static SplitFile newFile(String name, byte[] content) throws Exception {
        final SplitFile file = SplitFile.open(
                Path.of(name), StandardOpenOption.READ, StandardOpenOption.WRITE, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING);
        file.write(MemorySegment.ofArray(content), 0);
        return file;
    }

    private static byte[] contentOf(SplitFile file) throws Exception {
        final byte[] content = new byte[(int) file.size()];
        check(file.read(MemorySegment.ofArray(content), 0) == content.length, "a short read");
        return content;
    }

    private static void files() throws Exception {
        final SplitFile file = newFile("file", pattern(1, 10000));
        same(contentOf(file), pattern(1, 10000));
        /* Java's own files see the same. */
        same(Files.readAllBytes(Path.of("file")), pattern(1, 10000));
        file.force();
        file.truncate(5000);
        check(file.size() == 5000 && file.read(MemorySegment.ofArray(new byte[100]), 4990) == 10, "a read at the end");
        fails(SplitFsException.EINVAL, () -> file.truncate(-1));
        fails(SplitFsException.EINVAL, () -> file.read(MemorySegment.ofArray(new byte[1]), -1));
        file.close();
        file.close();
        raises(ClosedChannelException.class, file::size);
        raises(ClosedChannelException.class, () -> SplitFs.peek(file, 0, 1, Arena.global()));
        raises(NoSuchFileException.class, () -> SplitFile.open(Path.of("not-there")));
        raises(UnsupportedOperationException.class, () -> SplitFile.open(Path.of("file"), StandardOpenOption.DELETE_ON_CLOSE));
    }

    private static void snapshots() throws Exception {
        final byte[] was = pattern(1, 123457);
        try (SplitFile file = newFile("snapshots", was)) {
            final MemorySegment all;
            final MemorySegment slice;
            try (Arena arena = Arena.ofConfined()) {
                all = SplitFs.peek(file, 0, SplitFs.TO_END, arena);
                slice = all.asSlice(5, 10);
                same(all, was);
                raises(IllegalArgumentException.class, () -> all.set(JAVA_BYTE, 0, (byte) 1));
                same(SplitFs.peek(file, 5, 10, arena), Arrays.copyOfRange(was, 5, 15));
                check(SplitFs.peek(file, was.length, 1, arena).byteSize() == 0, "bytes past the end");
                final List<MemorySegment> pieces = SplitFs.peekv(file, 3, 50000, 16, arena);
                long n = 0;
                for (MemorySegment piece : pieces) {
                    same(piece, Arrays.copyOfRange(was, (int) (3 + n), (int) (3 + n + piece.byteSize())));
                    n += piece.byteSize();
                }
                check(n == 50000, n + " bytes in pieces");
                check(SplitFs.peekv(file, was.length, 1, 1, arena).isEmpty(), "pieces past the end");
            }
            raises(IllegalStateException.class, () -> all.get(JAVA_BYTE, 0));
            raises(IllegalStateException.class, () -> slice.get(JAVA_BYTE, 0));
        }
    }

    private static void outlives() throws Exception {
        final byte[] was = pattern(1, 123457);
        try (Arena arena = Arena.ofShared()) {
            final MemorySegment snapshot;
            try (SplitFile file = newFile("outlives", was)) {
                snapshot = SplitFs.peek(file, 1000, 8000, arena);
                file.write(MemorySegment.ofArray(pattern(2, was.length)), 0);
                file.force();
                file.truncate(0);
                Files.delete(Path.of("outlives"));
            }
            final Thread other = new Thread(() -> same(snapshot, Arrays.copyOfRange(was, 1000, 9000)));
            final List<Throwable> why = new ArrayList<>();
            other.setUncaughtExceptionHandler((t, e) -> why.add(e));
            other.start();
            other.join();
            check(why.isEmpty(), "another thread: " + why);
        }
    }

    private static void snapshotErrors() throws Exception {
        try (Arena arena = Arena.ofConfined();
                SplitFile file = newFile("refused", pattern(1, 100));
                SplitFile out = SplitFile.open(Path.of("refused"), StandardOpenOption.WRITE);
                SplitFile foreign = SplitFile.open(Path.of("/proc/self/exe"))) {
            fails(SplitFsException.EBADF, () -> SplitFs.peek(out, 0, 1, arena));
            fails(SplitFsException.EBADF, () -> SplitFs.peekv(out, 0, 1, 1, arena));
            for (long[] bad : new long[][] {{-1, 1}, {0, -1}, {Long.MIN_VALUE, Long.MIN_VALUE}}) {
                fails(SplitFsException.EINVAL, () -> SplitFs.peek(file, bad[0], bad[1], arena));
                fails(SplitFsException.EINVAL, () -> SplitFs.peekv(file, bad[0], bad[1], 1, arena));
            }
            fails(SplitFsException.EINVAL, () -> SplitFs.peekv(file, 0, 1, 0, arena));
            final Arena closed = Arena.ofConfined();
            closed.close();
            /* More than there may be at once: none is kept. */
            for (int i = 0; i < 5000; i++) {
                raises(IllegalStateException.class, () -> SplitFs.peek(file, 0, 1, closed));
            }
            final int flags = SplitFs.flags(0);
            fails(SplitFsException.ENOTSUP, () -> SplitFs.peek(foreign, 0, 4, arena));
            check(SplitFs.flags(SplitFs.COPY) == 0, "flags");
            same(SplitFs.peek(foreign, 0, 4, arena), "\177ELF".getBytes(StandardCharsets.US_ASCII));
            SplitFs.flags(flags);
        }
    }

    private static void patches() throws Exception {
        try (Pool pool = Pool.of(Path.of("."), 4 * BLOCK);
                SplitFile file = newFile("patched", pattern(1, 4 * BLOCK));
                SplitFile source = SplitFile.open(Path.of("patched"));
                SplitFile log = SplitFile.open(Path.of("patched"), StandardOpenOption.APPEND);
                SplitFile foreign = newFile("/dev/shm/splitfs-test-" + ProcessHandle.current().pid(), new byte[0])) {
            Files.delete(Path.of(foreign.toString()));
            for (boolean shared : new boolean[] {false, true}) {
                file.write(MemorySegment.ofArray(pattern(1, 4 * BLOCK)), 0);
                final Buffer buffer = shared ? pool.allocShared(BLOCK, 2 * BLOCK) : pool.alloc(BLOCK, 2 * BLOCK);
                buffer.segment().copyFrom(MemorySegment.ofArray(pattern(2, 2 * BLOCK)));
                fails(SplitFsException.EBADF, () -> buffer.patch(source, 0, BLOCK));
                fails(SplitFsException.EINVAL, () -> buffer.patch(log, 0, BLOCK));
                fails(SplitFsException.EINVAL, () -> buffer.patch(file, 1, BLOCK));
                fails(SplitFsException.EINVAL, () -> buffer.patch(file, -1, BLOCK));
                fails(SplitFsException.EINVAL, () -> buffer.patch(file, 0, 2 * BLOCK + 1));
                if (SERVED) {
                    fails(SplitFsException.EXDEV, () -> buffer.patch(foreign, 0, BLOCK));
                }
                fails(SplitFsException.EBUSY, pool::close);
                same(contentOf(file), pattern(1, 4 * BLOCK));

                final MemorySegment before = buffer.segment().asSlice(10, 10);
                before.set(JAVA_BYTE, 0, pattern(2, 11)[10]);
                check(buffer.patch(file, BLOCK, 2 * BLOCK) == 2 * BLOCK, "a short patch");
                raises(IllegalStateException.class, () -> before.set(JAVA_BYTE, 0, (byte) 1));
                raises(IllegalArgumentException.class, () -> buffer.segment().set(JAVA_BYTE, 0, (byte) 1));
                final byte[] want = pattern(1, 4 * BLOCK);
                System.arraycopy(pattern(2, 2 * BLOCK), 0, want, BLOCK, 2 * BLOCK);
                same(contentOf(file), want);
                fails(SplitFsException.EINVAL, () -> buffer.patch(file, BLOCK, 2 * BLOCK));
                file.write(MemorySegment.ofArray(pattern(3, BLOCK)), BLOCK);
                same(buffer.segment(), pattern(2, 2 * BLOCK));
                buffer.close();
                buffer.close();
                raises(IllegalStateException.class, buffer::segment);
                raises(IllegalStateException.class, () -> buffer.patch(file, 0, 1));
            }
        }
    }

    private static void pools() throws Exception {
        fails(SplitFsException.EINVAL, () -> Pool.of(Path.of("."), 0));
        fails(SplitFsException.EINVAL, () -> Pool.of(Path.of("."), -1));
        raises(NoSuchFileException.class, () -> Pool.of(Path.of("not-there"), 1));
        final int flags = SplitFs.flags(0);
        fails(SplitFsException.ENOTSUP, () -> Pool.of(Path.of("/proc/self"), 1));
        SplitFs.flags(flags);
        final Pool pool = Pool.of(Path.of("."), 4 * BLOCK);
        fails(SplitFsException.EINVAL, () -> pool.alloc(0, 0));
        fails(SplitFsException.EINVAL, () -> pool.alloc(-1, 1));
        fails(SplitFsException.ENOSPC, () -> pool.alloc(1, 4 * BLOCK));
        pool.close();
        pool.close();
        fails(SplitFsException.EINVAL, () -> pool.alloc(0, 1));
    }

    private static void together() throws Exception {
        try (SplitFile one = newFile("one", pattern(1, 3 * BLOCK));
                SplitFile two = newFile("two", pattern(2, 3 * BLOCK))) {
            final List<SplitFs.Range> ranges = List.of(
                    new SplitFs.Range(one, 5, MemorySegment.ofArray("first".getBytes(StandardCharsets.US_ASCII))),
                    new SplitFs.Range(two, BLOCK, MemorySegment.ofArray("second".getBytes(StandardCharsets.US_ASCII))),
                    new SplitFs.Range(one, 2 * BLOCK, Arena.ofAuto().allocateFrom("third")));
            final byte[] first = pattern(1, 3 * BLOCK);
            final byte[] second = pattern(2, 3 * BLOCK);
            if ("strict".equals(MODE)) {
                SplitFs.writeAtomic(ranges);
                System.arraycopy("first".getBytes(StandardCharsets.US_ASCII), 0, first, 5, 5);
                System.arraycopy("third\0".getBytes(StandardCharsets.US_ASCII), 0, first, 2 * BLOCK, 6);
                System.arraycopy("second".getBytes(StandardCharsets.US_ASCII), 0, second, BLOCK, 6);
            } else {
                fails(SplitFsException.ENOTSUP, () -> SplitFs.writeAtomic(ranges));
            }
            same(contentOf(one), first);
            same(contentOf(two), second);
            fails(SplitFsException.EINVAL, () -> SplitFs.writeAtomic(List.of()));
        }
    }

    /* Another thread ends the memory while it is written: then it is refused, or all of it is there. */
    private static void endedMeanwhile() throws Exception {
        if (!"strict".equals(MODE)) {
            return;
        }
        final byte[] bytes = pattern(5, 16 << 20);
        try (SplitFile file = newFile("ended", pattern(1, bytes.length))) {
            for (int i = 0; i < 40; i++) {
                final Arena arena = Arena.ofShared();
                final MemorySegment data = arena.allocate(bytes.length).copyFrom(MemorySegment.ofArray(bytes));
                final long pause = i * 300_000L;
                final Thread other = new Thread(() -> {
                    final long until = System.nanoTime() + pause;
                    while (System.nanoTime() < until) {
                        Thread.onSpinWait();
                    }
                    arena.close();
                });
                other.start();
                try {
                    SplitFs.writeAtomic(List.of(new SplitFs.Range(file, 0, data)));
                    same(contentOf(file), bytes);
                } catch (IllegalStateException e) {
                    check(!data.scope().isAlive(), e.toString());
                    Thread.interrupted(); // the machine has woken this thread so
                }
                other.join();
            }
        }
    }

    private static void swaps() throws Exception {
        try (SplitFile left = newFile("left", pattern(1, BLOCK));
                SplitFile right = newFile("right", pattern(2, BLOCK))) {
            if (!SERVED) {
                fails(SplitFsException.ENOTSUP, () -> SplitFs.swap(left, 0, right, 0, BLOCK));
                return;
            }
            SplitFs.swap(left, 0, right, 0, BLOCK);
            same(contentOf(left), pattern(2, BLOCK));
            same(contentOf(right), pattern(1, BLOCK));
            fails(SplitFsException.EINVAL, () -> SplitFs.swap(left, 0, left, 1, 1));
            fails(SplitFsException.EINVAL, () -> SplitFs.swap(left, 0, right, BLOCK, 1));
            fails(SplitFsException.EINVAL, () -> SplitFs.swap(left, 0, right, -1, 1));
        }
    }

    /* A snapshot is kept while threads come and go and memory is collected. */
    private static void threads() throws Exception {
        final byte[] was = pattern(1, 64 * BLOCK);
        try (SplitFile file = newFile("threads", was)) {
            final List<Throwable> why = new ArrayList<>();
            final List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 8; t++) {
                final int from = t;
                final Callable<Void> body = () -> {
                    for (int i = 0; i < 200; i++) {
                        try (Arena arena = Arena.ofConfined()) {
                            final int off = from * 200 + i;
                            same(SplitFs.peek(file, off, BLOCK, arena), Arrays.copyOfRange(was, off, off + BLOCK));
                            fails(SplitFsException.EINVAL, () -> SplitFs.peek(file, -1, 1, arena));
                        }
                    }
                    return null;
                };
                final Thread thread = new Thread(() -> {
                    try {
                        body.call();
                    } catch (Throwable e) {
                        synchronized (why) {
                            why.add(e);
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            System.gc();
            for (Thread thread : threads) {
                thread.join();
            }
            check(why.isEmpty(), why.toString());
        }
    }

    private static void example() throws Exception {
        final byte[] content = pattern(4, 300000);
        newFile("coded", Base64.getEncoder().encode(content)).close();
        Decode.main(new String[] {"coded", "decoded"});
        same(Files.readAllBytes(Path.of("decoded")), content);
    }

    public static void main(String[] args) throws Exception {
        SplitFs.flags(SERVED ? 0 : SplitFs.COPY);
        files();
        snapshots();
        outlives();
        snapshotErrors();
        patches();
        pools();
        together();
        endedMeanwhile();
        swaps();
        threads();
        example();
    }
}
