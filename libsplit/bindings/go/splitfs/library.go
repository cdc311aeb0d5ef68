// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLibrary is what is wrong when libsplitfs.so can't be loaded.
var ErrLibrary = errors.New("splitfs: no library")

// Copy is a flag of SetFlags: where a file can't be served without a copy, it is copied, instead of ENOTSUP.
const Copy = 1

// The names by which SPLITFS_LIBRARY and the dynamic linker find the library.
const (
	libraryVariable = "SPLITFS_LIBRARY"
	libraryName     = "libsplitfs.so.1"
)

func libraryPath() string {
	if path := os.Getenv(libraryVariable); path != "" {
		return path
	}
	return libraryName
}

// functions are the addresses of what is called in C.
type functions struct {
	errno uintptr // of the thread: its address is what the function returns

	// Of the C library, or of libsplit.so where that is preloaded.
	open, close, pread, pwrite, lseek, fsync, ftruncate uintptr

	flags, peek, peekv, unpeek, poolCreate, poolDestroy, alloc, free, patch, writeAtomic, swap uintptr
}

// SetFlags sets the flags of the process, and returns what they were.
func SetFlags(flags uint32) (uint32, error) {
	lib, err := library()
	if err != nil {
		return 0, err
	}
	was, _ := lib.callInt(lib.flags, uintptr(flags))
	return uint32(was), nil
}

func failed(op, name string, err error) error {
	return &os.PathError{Op: op, Path: name, Err: err}
}

// checkRange refuses what C would take for something else.
func checkRange(op, name string, off int64, n int) error {
	if off < 0 || n < 0 {
		return failed(op, name, fmt.Errorf("%w: offset %d, length %d", syscall.EINVAL, off, n))
	}
	return nil
}
