// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Pool is a pool of buffers that become parts of files without being copied.
type Pool struct {
	lib    *functions
	number uintptr
}

// NewPool makes a pool of size bytes at most, of the volume that a directory or file is on.
func NewPool(dir string, size int) (*Pool, error) {
	if err := checkRange("pool", dir, 0, size); err != nil {
		return nil, err
	}
	f, err := OpenFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	number, errno := f.lib.callInt(f.lib.poolCreate, f.fd, uintptr(size))
	if number < 0 {
		return nil, failed("pool", dir, errno)
	}
	return &Pool{lib: f.lib, number: uintptr(number)}, nil
}

// Close ends the pool. EBUSY: it has buffers. A second time is EINVAL.
func (p *Pool) Close() error {
	if r, errno := p.lib.callInt(p.lib.poolDestroy, p.number); r < 0 {
		return fmt.Errorf("close pool: %w", errno)
	}
	return nil
}

// Buffer is memory that Patch makes a part of a file.
type Buffer struct {
	lib  *functions
	mu   sync.Mutex
	data []byte // nil: it has been freed
}

// Alloc returns a buffer of n bytes, which may be patched at offsets that are off modulo 4096. What it holds is
// anything.
func (p *Pool) Alloc(off int64, n int) (*Buffer, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("alloc: %w: offset %d, length %d", syscall.EINVAL, off, n)
	}
	at, errno := p.lib.call(p.lib.alloc, p.number, uintptr(off), uintptr(n))
	if at == 0 {
		return nil, fmt.Errorf("alloc: %w", errno)
	}
	return &Buffer{lib: p.lib, data: unsafe.Slice((*byte)(pointer(at)), n)}, nil
}

// Bytes may be stored to until Patch and read until Free. To do so later is the end of the program.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

// Patch makes the first n bytes the file's from off on, and returns how many. After an error the buffer is as it was.
func (b *Buffer) Patch(f *File, off int64, n int) (int, error) {
	if err := checkRange("patch", f.name, off, n); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data == nil {
		return 0, failed("patch", f.name, fmt.Errorf("%w: the buffer has been freed", syscall.EINVAL))
	}
	if err := f.use("patch"); err != nil {
		return 0, err
	}
	defer f.done()
	r, errno := b.lib.call(b.lib.patch, f.fd, uintptr(unsafe.Pointer(unsafe.SliceData(b.data))), uintptr(n),
		uintptr(off))
	if int64(r) < 0 {
		return 0, failed("patch", f.name, errno)
	}
	return int(r), nil
}

// Free gives the buffer back. A second time is EINVAL.
func (b *Buffer) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data == nil {
		return fmt.Errorf("free: %w: the buffer has been freed", syscall.EINVAL)
	}
	if r, errno := b.lib.callInt(b.lib.free, uintptr(unsafe.Pointer(unsafe.SliceData(b.data)))); r < 0 {
		return fmt.Errorf("free: %w", errno)
	}
	b.data = nil
	return nil
}
