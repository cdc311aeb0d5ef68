// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// Range is a part of a file, and what is to be there.
type Range struct {
	File *File
	Off  int64
	Data []byte
}

// cRange is that of C.
type cRange struct {
	fd   int32
	off  int64
	data uintptr
	len  uintptr
}

// WriteAtomic writes all ranges in one step, or nothing; in strict mode alone.
func WriteAtomic(ranges ...Range) error {
	lib, err := library()
	if err != nil {
		return err
	}
	if len(ranges) == 0 {
		return fmt.Errorf("write_atomic: %w: no ranges", syscall.EINVAL)
	}
	// C has no pointers to what Go may move.
	var pinner runtime.Pinner
	defer pinner.Unpin()
	array := make([]cRange, len(ranges))
	for i, r := range ranges {
		if err := checkRange("write_atomic", r.File.name, r.Off, len(r.Data)); err != nil {
			return err
		}
		if err := r.File.use("write_atomic"); err != nil {
			return err
		}
		defer r.File.done()
		array[i] = cRange{fd: int32(r.File.fd), off: r.Off, len: uintptr(len(r.Data))}
		if len(r.Data) > 0 {
			pinner.Pin(&r.Data[0])
			array[i].data = uintptr(unsafe.Pointer(&r.Data[0]))
		}
	}
	r, errno := lib.callInt(lib.writeAtomic, uintptr(unsafe.Pointer(&array[0])), uintptr(len(array)))
	if r < 0 {
		return fmt.Errorf("write_atomic: %w", errno)
	}
	return nil
}

// Swap exchanges n bytes of two files of a volume in one step.
func Swap(f1 *File, off1 int64, f2 *File, off2 int64, n int) error {
	for _, r := range []struct {
		f   *File
		off int64
	}{{f1, off1}, {f2, off2}} {
		if err := checkRange("swap", r.f.name, r.off, n); err != nil {
			return err
		}
		if err := r.f.use("swap"); err != nil {
			return err
		}
		defer r.f.done()
	}
	r, errno := f1.lib.callInt(f1.lib.swap, f1.fd, uintptr(off1), f2.fd, uintptr(off2), uintptr(n))
	if r < 0 {
		return failed("swap", f1.name, errno)
	}
	return nil
}
