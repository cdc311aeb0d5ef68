// SPDX-License-Identifier: Apache-2.0
package io.splitfs;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.file.Path;
import java.util.Optional;

/** The functions of libsplitfs.so, and of the C library, or of libsplit.so where that is preloaded. */
final class Native {
    /** What a call of C throws is a fault of this class. */
    @FunctionalInterface
    interface Call<T> {
        T on(MemorySegment errno) throws Throwable;
    }

    static final StructLayout RANGE = MemoryLayout.structLayout(
            JAVA_INT.withName("fd"), MemoryLayout.paddingLayout(4), JAVA_LONG.withName("off"), ADDRESS.withName("buf"), JAVA_LONG.withName("len"));
    static final StructLayout IOVEC = MemoryLayout.structLayout(ADDRESS.withName("base"), JAVA_LONG.withName("len"));

    private static final Linker LINKER = Linker.nativeLinker();
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final ThreadLocal<MemorySegment> STATES = ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(STATE));
    private static final SymbolLookup SPLITFS = library();

    static final MethodHandle FLAGS = splitfs("flags", JAVA_INT, JAVA_INT);
    static final MethodHandle PEEK = splitfs("peek", ADDRESS, JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS);
    static final MethodHandle PEEKV = splitfs("peekv", JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_INT, ADDRESS);
    static final MethodHandle UNPEEK = splitfs("unpeek", JAVA_INT, ADDRESS);
    static final MethodHandle POOL_CREATE = splitfs("pool_create", JAVA_INT, JAVA_INT, JAVA_LONG);
    static final MethodHandle POOL_DESTROY = splitfs("pool_destroy", JAVA_INT, JAVA_INT);
    static final MethodHandle ALLOC = splitfs("alloc", ADDRESS, JAVA_INT, JAVA_LONG, JAVA_LONG);
    static final MethodHandle FREE = splitfs("free", JAVA_INT, ADDRESS);
    static final MethodHandle PATCH = splitfs("patch", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    static final MethodHandle WRITE_ATOMIC = splitfs("write_atomic", JAVA_INT, ADDRESS, JAVA_INT);
    static final MethodHandle SWAP = splitfs("swap", JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG);

    /* open(2) has its mode behind an ellipsis. */
    static final MethodHandle OPEN = function(
            process("open"), FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT), Linker.Option.firstVariadicArg(2));
    static final MethodHandle CLOSE = posix("close", JAVA_INT, JAVA_INT);
    static final MethodHandle PREAD = posix("pread", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    static final MethodHandle PWRITE = posix("pwrite", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    static final MethodHandle LSEEK = posix("lseek", JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT);
    static final MethodHandle FSYNC = posix("fsync", JAVA_INT, JAVA_INT);
    static final MethodHandle FTRUNCATE = posix("ftruncate", JAVA_INT, JAVA_INT, JAVA_LONG);

    private Native() {}

    /** A result below zero is an error. */
    static long result(String name, Call<Long> call) throws SplitFsException {
        final MemorySegment errno = STATES.get();
        final long r = made(call, errno);
        if (r < 0) {
            throw new SplitFsException(name, (int) ERRNO.get(errno, 0L));
        }
        return r;
    }

    /** NULL is an error. */
    static MemorySegment address(String name, Call<MemorySegment> call) throws SplitFsException {
        final MemorySegment errno = STATES.get();
        final MemorySegment p = made(call, errno);
        if (p.address() == 0) {
            throw new SplitFsException(name, (int) ERRNO.get(errno, 0L));
        }
        return p;
    }

    private static <T> T made(Call<T> call, MemorySegment errno) {
        try {
            return call.on(errno);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    static String describe(int errno) {
        final MethodHandle strerror = LINKER.downcallHandle(found("strerror"), FunctionDescriptor.of(ADDRESS, JAVA_INT));
        try {
            return ((MemorySegment) strerror.invokeExact(errno)).reinterpret(Long.MAX_VALUE).getString(0);
        } catch (Throwable e) {
            return "errno " + errno;
        }
    }

    private static SymbolLookup library() {
        final String path = System.getenv("SPLITFS_LIBRARY");
        return path == null || path.isEmpty()
                ? SymbolLookup.libraryLookup("libsplitfs.so.1", Arena.global())
                : SymbolLookup.libraryLookup(Path.of(path), Arena.global());
    }

    private static MethodHandle splitfs(String name, MemoryLayout result, MemoryLayout... arguments) {
        final Optional<MemorySegment> at = SPLITFS.find("splitfs_" + name);
        return function(at.orElseThrow(() -> new UnsatisfiedLinkError("splitfs_" + name)), FunctionDescriptor.of(result, arguments));
    }

    private static MethodHandle posix(String name, MemoryLayout result, MemoryLayout... arguments) {
        return function(process(name), FunctionDescriptor.of(result, arguments));
    }

    private static MethodHandle function(MemorySegment at, FunctionDescriptor type, Linker.Option... more) {
        final Linker.Option[] options = java.util.Arrays.copyOf(more, more.length + 1);
        options[more.length] = Linker.Option.captureCallState("errno");
        return LINKER.downcallHandle(at, type, options);
    }

    /** The first definition in the process. What the linker finds by itself is the C library's own, which libsplit.so does not see. */
    private static MemorySegment process(String name) {
        final MethodHandle dlsym = LINKER.downcallHandle(found("dlsym"), FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS));
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment at = (MemorySegment) dlsym.invokeExact(MemorySegment.NULL, arena.allocateFrom(name));
            if (at.address() == 0) {
                throw new UnsatisfiedLinkError(name);
            }
            return at;
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static MemorySegment found(String name) {
        return LINKER.defaultLookup().find(name).orElseThrow(() -> new UnsatisfiedLinkError(name));
    }
}
