// SPDX-License-Identifier: Apache-2.0
package io.splitfs;

import java.io.IOException;

/** A call that failed, with its {@code errno}. */
public final class SplitFsException extends IOException {
    private static final long serialVersionUID = 1;

    public static final int EBADF = 9;
    public static final int EBUSY = 16;
    public static final int EXDEV = 18;
    public static final int EINVAL = 22;
    public static final int ENOSPC = 28;
    public static final int ENOTSUP = 95;

    private final int errno;

    SplitFsException(String call, int errno) {
        super(call + ": " + Native.describe(errno));
        this.errno = errno;
    }

    public int errno() {
        return errno;
    }
}
