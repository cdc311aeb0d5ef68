// SPDX-License-Identifier: Apache-2.0
import java.io.FileOutputStream;

public class Append {
    public static void main(String[] args) throws Exception {
        FileOutputStream log = new FileOutputStream("log", true);
        FileOutputStream out = new FileOutputStream(java.io.FileDescriptor.out);
        for (long n = Long.parseLong(args[0]); ; n++) {
            log.write((n + " " + "x".repeat((int) (n * 7919 % 500)) + " " + n + "\n").getBytes());
            out.write((n + "\n").getBytes());
        }
    }
}
