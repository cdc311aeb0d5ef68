// SPDX-License-Identifier: Apache-2.0

// Package splitfs has files of SplitFS volumes without copying: the calls of splitfs.h.
//
// The runtime makes its system calls itself, so libsplit.so, which is preloaded, does not see files that package os
// opens. A File is opened, read and written by the C library; while it is, package os must not be used on the same file
// in this process: it would not see what is staged, and change snapshots.
//
// No C compiler is needed: libsplitfs.so is loaded when the first call is made, and every call fails with ErrLibrary
// where it can't be. A program that uses this package is linked dynamically, with the C library, also with
// CGO_ENABLED=0.
//
// Errors wrap the errno of the C call: errors.Is(err, syscall.ENOTSUP).
package splitfs
