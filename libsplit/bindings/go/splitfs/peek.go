// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// ToEnd as a length of Peek is up to the end of the file.
const ToEnd = math.MaxInt

// View is a snapshot of a part of a file.
type View struct {
	lib  *functions
	data []byte
	at   atomic.Uintptr // 0: it has been given back
}

// WithPeek calls fn with a snapshot of n bytes of the file from off on, or as many as there are. They must not be
// stored to, and not be kept: they are gone when fn returns.
func (f *File) WithPeek(off int64, n int, fn func(data []byte) error) (err error) {
	view, err := f.Peek(off, n)
	if err != nil {
		return err
	}
	defer func() {
		if back := view.Unpeek(); err == nil {
			err = back
		}
	}()
	return fn(view.Bytes())
}

// Peek returns the same for the caller to give back with Unpeek. Nobody else gives it back.
func (f *File) Peek(off int64, n int) (*View, error) {
	if err := checkRange("peek", f.name, off, n); err != nil {
		return nil, err
	}
	if err := f.use("peek"); err != nil {
		return nil, err
	}
	defer f.done()
	var got uintptr
	at, errno := f.lib.call(f.lib.peek, f.fd, uintptr(off), uintptr(n), uintptr(unsafe.Pointer(&got)))
	if at == 0 {
		return nil, failed("peek", f.name, errno)
	}
	return newView(f.lib, at, got), nil
}

func newView(lib *functions, at, n uintptr) *View {
	v := &View{lib: lib, data: unsafe.Slice((*byte)(pointer(at)), n)}
	v.at.Store(at)
	return v
}

// iovec is that of C.
type iovec struct {
	base, len uintptr
}

// Peekv returns a snapshot as pieces, pieces of them at most, each with its own Unpeek; none at the end of the file.
func (f *File) Peekv(off int64, n, pieces int) ([]*View, error) {
	if err := checkRange("peekv", f.name, off, n); err != nil {
		return nil, err
	}
	if pieces < 1 || pieces > math.MaxUint16 {
		return nil, failed("peekv", f.name, fmt.Errorf("%w: %d pieces", syscall.EINVAL, pieces))
	}
	if err := f.use("peekv"); err != nil {
		return nil, err
	}
	defer f.done()
	var got uintptr
	iov := make([]iovec, pieces)
	r, errno := f.lib.callInt(f.lib.peekv, f.fd, uintptr(off), uintptr(n), uintptr(unsafe.Pointer(&iov[0])),
		uintptr(pieces), uintptr(unsafe.Pointer(&got)))
	if r < 0 {
		return nil, failed("peekv", f.name, errno)
	}
	views := make([]*View, r)
	for i := range views {
		views[i] = newView(f.lib, iov[i].base, iov[i].len)
	}
	return views, nil
}

// Bytes are the snapshot's until Unpeek, and must not be stored to. After Unpeek there are none; to look at a slice of
// them then is the end of the program.
func (v *View) Bytes() []byte {
	if v.at.Load() == 0 {
		return nil
	}
	return v.data
}

// Unpeek gives the snapshot back. A second time is EINVAL.
func (v *View) Unpeek() error {
	at := v.at.Swap(0)
	if at == 0 {
		return fmt.Errorf("unpeek: %w: it has been given back", syscall.EINVAL)
	}
	if r, errno := v.lib.callInt(v.lib.unpeek, at); r < 0 {
		return fmt.Errorf("unpeek: %w", errno)
	}
	return nil
}
