// SPDX-License-Identifier: Apache-2.0

import io.splitfs.SplitFile;
import io.splitfs.SplitFs;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;

/** Decodes a file of base64, without line breaks, into another one, from the first one's own memory. */
public final class Decode {
    private static final long CHUNK = 4 << 20; // characters, a multiple of 4

    private Decode() {}

    private static void decode(Path source, Path target) throws IOException {
        SplitFs.flags(SplitFs.COPY);
        try (Arena arena = Arena.ofConfined();
                SplitFile in = SplitFile.open(source);
                SplitFile out =
                        SplitFile.open(target, StandardOpenOption.WRITE, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING)) {
            final MemorySegment coded = SplitFs.peek(in, 0, SplitFs.TO_END, arena);
            long written = 0;
            for (long at = 0; at < coded.byteSize(); at += CHUNK) {
                final ByteBuffer part = coded.asSlice(at, Math.min(CHUNK, coded.byteSize() - at)).asByteBuffer();
                final ByteBuffer decoded = Base64.getDecoder().decode(part);
                out.write(MemorySegment.ofBuffer(decoded), written);
                written += MemorySegment.ofBuffer(decoded).byteSize();
            }
        }
    }

    public static void main(String[] args) {
        if (args.length != 2) {
            System.err.println("usage: Decode INPUT OUTPUT");
            System.exit(2);
        }
        try {
            decode(Path.of(args[0]), Path.of(args[1]));
        } catch (IOException | IllegalArgumentException e) {
            System.err.println("Decode: " + e);
            System.exit(1);
        }
    }
}
