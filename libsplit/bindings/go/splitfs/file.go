// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// File is a file that the C library has opened, so that libsplit.so serves it. Methods may be called from several
// goroutines at once.
type File struct {
	lib  *functions
	name string
	fd   uintptr
	// The descriptor is closed, and its number may be another file's, when closed is true and users is 0.
	mu     sync.Mutex
	users  int // calls that are under way
	closed bool
}

// Open opens a file for reading.
func Open(name string) (*File, error) {
	return OpenFile(name, os.O_RDONLY, 0)
}

// OpenFile opens a file with flags of package os.
func OpenFile(name string, flag int, perm os.FileMode) (*File, error) {
	lib, err := library()
	if err != nil {
		return nil, err
	}
	path, err := syscall.BytePtrFromString(name)
	if err != nil {
		return nil, failed("open", name, err)
	}
	for {
		fd, errno := lib.callInt(lib.open, uintptr(unsafe.Pointer(path)), uintptr(flag|syscall.O_CLOEXEC),
			uintptr(perm.Perm()))
		if fd >= 0 {
			return &File{lib: lib, name: name, fd: uintptr(fd)}, nil
		}
		if !errors.Is(errno, syscall.EINTR) {
			return nil, failed("open", name, errno)
		}
	}
}

// Name is what the file was opened with.
func (f *File) Name() string {
	return f.name
}

// use holds the descriptor for a call; done lets it go.
func (f *File) use(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return failed(op, f.name, os.ErrClosed)
	}
	f.users++
	return nil
}

func (f *File) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	if f.closed && f.users == 0 {
		// Nobody is left to be told.
		_, _ = f.lib.callInt(f.lib.close, f.fd)
	}
}

// simple makes a call that returns 0 or -1.
func (f *File) simple(op string, function uintptr, arguments ...uintptr) error {
	if err := f.use(op); err != nil {
		return err
	}
	defer f.done()
	for {
		r, errno := f.lib.callInt(function, append([]uintptr{f.fd}, arguments...)...)
		if r == 0 {
			return nil
		}
		if !errors.Is(errno, syscall.EINTR) {
			return failed(op, f.name, errno)
		}
	}
}

// transfer makes calls of pread or pwrite until all bytes are there, or no more come.
func (f *File) transfer(op string, function uintptr, p []byte, off int64) (int, error) {
	if err := checkRange(op, f.name, off, len(p)); err != nil {
		return 0, err
	}
	if err := f.use(op); err != nil {
		return 0, err
	}
	defer f.done()
	n := 0
	for n < len(p) {
		r, errno := f.lib.call(function, f.fd, uintptr(unsafe.Pointer(&p[n])), uintptr(len(p)-n), uintptr(off)+uintptr(n))
		switch {
		case int64(r) > 0:
			n += int(r)
		case r == 0:
			return n, nil
		case !errors.Is(errno, syscall.EINTR):
			return n, failed(op, f.name, errno)
		}
	}
	return n, nil
}

// ReadAt is that of io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.transfer("read", f.lib.pread, p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// WriteAt is that of io.WriterAt.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.transfer("write", f.lib.pwrite, p, off)
	if err == nil && n < len(p) {
		err = failed("write", f.name, io.ErrShortWrite)
	}
	return n, err
}

// Size is the file's now.
func (f *File) Size() (int64, error) {
	if err := f.use("seek"); err != nil {
		return 0, err
	}
	defer f.done()
	r, errno := f.lib.call(f.lib.lseek, f.fd, 0, io.SeekEnd)
	if int64(r) < 0 {
		return 0, failed("seek", f.name, errno)
	}
	return int64(r), nil
}

// Sync is fsync(2).
func (f *File) Sync() error {
	return f.simple("sync", f.lib.fsync)
}

// Truncate is ftruncate(2).
func (f *File) Truncate(size int64) error {
	return f.simple("truncate", f.lib.ftruncate, uintptr(size))
}

// Close closes the descriptor, behind calls that are under way. What was peeked of the file stays.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return failed("close", f.name, os.ErrClosed)
	}
	f.closed = true
	if f.users > 0 {
		return nil
	}
	if r, errno := f.lib.callInt(f.lib.close, f.fd); r < 0 {
		return failed("close", f.name, errno)
	}
	return nil
}
