// SPDX-License-Identifier: Apache-2.0

package splitfs_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"

	"splitfs.io/splitfs/libsplit/bindings/go/splitfs"
)

const block = 4096

// volume says which mode the working directory has: plain is none, and what is not served is copied, or refused.
func volume(t testing.TB) string {
	t.Helper()
	mode := os.Getenv("TEST_MODE")
	if mode == "" {
		t.Skip("libsplit/test/bindings/test_go runs this on a volume")
	}
	flags := uint32(0)
	if mode == "plain" {
		flags = splitfs.Copy
	}
	if _, err := splitfs.SetFlags(flags); err != nil {
		t.Fatal(err)
	}
	return mode
}

func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + seed*7 + i>>8)
	}
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v instead of %v", err, want)
	}
}

func newFile(t testing.TB, name string, content []byte) *splitfs.File {
	t.Helper()
	f, err := splitfs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteAt(content, 0)
	must(t, err)
	return f
}

func expect(t *testing.T, f *splitfs.File, want []byte) {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
}

func same(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes are not the %d that there should be", len(got), len(want))
	}
}

func TestFile(t *testing.T) {
	volume(t)
	f := newFile(t, "file", pattern(1, 10000))
	expect(t, f, pattern(1, 10000))
	must(t, f.Sync())
	must(t, f.Truncate(5000))
	n, err := f.ReadAt(make([]byte, 100), 4990)
	if n != 10 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	must(t, f.Close())
	// Nothing of it is staged any more.
	content, err := os.ReadFile("file")
	must(t, err)
	same(t, content, pattern(1, 10000)[:5000])
	fails(t, f.Close(), os.ErrClosed)
	fails(t, f.Sync(), os.ErrClosed)
	_, err = f.Peek(0, 1)
	fails(t, err, os.ErrClosed)
	_, err = splitfs.Open("not-there")
	fails(t, err, os.ErrNotExist)
	_, err = splitfs.Open("nul\x00")
	fails(t, err, syscall.EINVAL)
	fails(t, newFile(t, "other", nil).Truncate(-1), syscall.EINVAL)
}

func TestPeek(t *testing.T) {
	volume(t)
	was := pattern(1, 123457)
	f := newFile(t, "peek", was)
	must(t, f.WithPeek(0, splitfs.ToEnd, func(data []byte) error {
		same(t, data, was)
		return nil
	}))
	must(t, f.WithPeek(5, 10, func(data []byte) error {
		same(t, data, was[5:15])
		return nil
	}))
	must(t, f.WithPeek(int64(len(was)), 10, func(data []byte) error {
		same(t, data, nil)
		return nil
	}))
	fails(t, f.WithPeek(0, 1, func([]byte) error { return io.ErrNoProgress }), io.ErrNoProgress)
	views, err := f.Peekv(3, 50000, 16)
	must(t, err)
	var pieces []byte
	for _, v := range views {
		pieces = append(pieces, v.Bytes()...)
		must(t, v.Unpeek())
	}
	same(t, pieces, was[3:50003])
	views, err = f.Peekv(int64(len(was)), 1, 1)
	if err != nil || len(views) != 0 {
		t.Fatal(views, err)
	}
}

// A snapshot stays what it is, whatever becomes of the file.
func TestOutlives(t *testing.T) {
	volume(t)
	was := pattern(1, 123457)
	f := newFile(t, "outlives", was)
	view, err := f.Peek(1000, 8000)
	must(t, err)
	_, err = f.WriteAt(pattern(2, len(was)), 0)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Truncate(0))
	must(t, os.Remove("outlives"))
	must(t, f.Close())
	same(t, view.Bytes(), was[1000:9000])
	must(t, view.Unpeek())
	if view.Bytes() != nil {
		t.Fatal("a snapshot that was given back has bytes")
	}
	fails(t, view.Unpeek(), syscall.EINVAL)
}

func store(to []byte) (fault any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() }()
	to[0] = 1
	return nil
}

// A store is a fault, which is the program's own to handle; a bad buffer in a call is none.
func TestFaults(t *testing.T) {
	volume(t)
	was := pattern(1, 3*block)
	f := newFile(t, "faults", was)
	view, err := f.Peek(0, block)
	must(t, err)
	if store(view.Bytes()) == nil {
		t.Fatal("a store to a snapshot went through")
	}
	if _, err := f.ReadAt(view.Bytes(), 0); !errors.Is(err, syscall.EFAULT) {
		t.Fatal("a read into a snapshot: ", err)
	}
	same(t, view.Bytes(), was[:block])
	must(t, view.Unpeek())
	pool, err := splitfs.NewPool(".", block)
	must(t, err)
	b, err := pool.Alloc(0, block)
	must(t, err)
	copy(b.Bytes(), was)
	if n, err := b.Patch(f, 0, block); n != block || err != nil {
		t.Fatal(n, err)
	}
	if store(b.Bytes()) == nil {
		t.Fatal("a store to a patched buffer went through")
	}
	must(t, b.Free())
	must(t, pool.Close())
	expect(t, f, was)
	// The runtime's own handler is still there.
	if store(nil) == nil {
		t.Fatal("a store outside of a slice went through")
	}
	var nowhere *[block]byte
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a store to nil went through")
			}
		}()
		nowhere[0] = 1
	}()
}

func TestPeekErrors(t *testing.T) {
	volume(t)
	f := newFile(t, "errors", pattern(1, 100))
	out, err := splitfs.OpenFile("errors", os.O_WRONLY, 0)
	must(t, err)
	defer out.Close()
	_, err = out.Peek(0, 1)
	fails(t, err, syscall.EBADF)
	_, err = out.Peekv(0, 1, 1)
	fails(t, err, syscall.EBADF)
	for _, bad := range []struct {
		off int64
		n   int
	}{{-1, 1}, {0, -1}, {math.MinInt64, math.MinInt}} {
		_, err = f.Peek(bad.off, bad.n)
		fails(t, err, syscall.EINVAL)
		_, err = f.Peekv(bad.off, bad.n, 1)
		fails(t, err, syscall.EINVAL)
	}
	_, err = f.Peekv(0, 1, 0)
	fails(t, err, syscall.EINVAL)
	was, err := splitfs.SetFlags(0)
	must(t, err)
	self, err := splitfs.Open("/proc/self/exe")
	must(t, err)
	defer self.Close()
	_, err = self.Peek(0, 4)
	fails(t, err, syscall.ENOTSUP)
	if now, err := splitfs.SetFlags(splitfs.Copy); now != 0 || err != nil {
		t.Fatal(now, err)
	}
	must(t, self.WithPeek(0, 4, func(data []byte) error {
		same(t, data, []byte("\x7fELF"))
		return nil
	}))
	_, err = splitfs.SetFlags(was)
	must(t, err)
}

func TestPatch(t *testing.T) {
	mode := volume(t)
	f := newFile(t, "patch", pattern(1, 4*block))
	pool, err := splitfs.NewPool(".", 4*block)
	must(t, err)
	b, err := pool.Alloc(block, 2*block)
	must(t, err)
	copy(b.Bytes(), pattern(2, 2*block))
	source, err := splitfs.Open("patch")
	must(t, err)
	defer source.Close()
	log, err := splitfs.OpenFile("patch", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer log.Close()
	for _, bad := range []struct {
		f    *splitfs.File
		off  int64
		n    int
		want error
	}{
		{source, 0, block, syscall.EBADF}, {log, 0, block, syscall.EINVAL}, {f, 1, block, syscall.EINVAL},
		{f, 0, 2*block + 1, syscall.EINVAL}, {f, -1, 1, syscall.EINVAL}, {f, 0, -1, syscall.EINVAL},
	} {
		_, err = b.Patch(bad.f, bad.off, bad.n)
		fails(t, err, bad.want)
	}
	if mode != "plain" {
		foreign, err := splitfs.OpenFile("/dev/shm", os.O_RDWR|0x410000 /* O_TMPFILE */, 0o600)
		must(t, err)
		defer foreign.Close()
		_, err = b.Patch(foreign, 0, block)
		fails(t, err, syscall.EXDEV)
	}
	_, err = pool.Alloc(0, 2*block+1)
	fails(t, err, syscall.ENOSPC)
	fails(t, pool.Close(), syscall.EBUSY)
	expect(t, f, pattern(1, 4*block))

	n, err := b.Patch(f, block, 2*block)
	if n != 2*block || err != nil {
		t.Fatal(n, err)
	}
	want := pattern(1, 4*block)
	copy(want[block:], pattern(2, 2*block))
	expect(t, f, want)
	_, err = b.Patch(f, block, 2*block)
	fails(t, err, syscall.EINVAL)
	_, err = f.WriteAt(pattern(3, block), block)
	must(t, err)
	same(t, b.Bytes(), pattern(2, 2*block))
	must(t, b.Free())
	fails(t, b.Free(), syscall.EINVAL)
	_, err = b.Patch(f, block, 1)
	fails(t, err, syscall.EINVAL)
	if b.Bytes() != nil {
		t.Fatal("a buffer that was freed has bytes")
	}
	must(t, pool.Close())
	fails(t, pool.Close(), syscall.EINVAL)
	_, err = pool.Alloc(0, 1)
	fails(t, err, syscall.EINVAL)
}

func TestPoolErrors(t *testing.T) {
	volume(t)
	_, err := splitfs.NewPool(".", 0)
	fails(t, err, syscall.EINVAL)
	_, err = splitfs.NewPool(".", -1)
	fails(t, err, syscall.EINVAL)
	_, err = splitfs.NewPool("not-there", block)
	fails(t, err, os.ErrNotExist)
	was, err := splitfs.SetFlags(0)
	must(t, err)
	_, err = splitfs.NewPool("/proc/self", block)
	fails(t, err, syscall.ENOTSUP)
	_, err = splitfs.SetFlags(was)
	must(t, err)
}

func TestWriteAtomic(t *testing.T) {
	mode := volume(t)
	one, two := newFile(t, "one", pattern(1, 3*block)), newFile(t, "two", pattern(2, 3*block))
	err := splitfs.WriteAtomic(
		splitfs.Range{File: one, Off: 5, Data: []byte("first")},
		splitfs.Range{File: two, Off: block, Data: []byte("second")},
		splitfs.Range{File: one, Off: 2 * block, Data: []byte("third")},
		splitfs.Range{File: two})
	wantOne, wantTwo := pattern(1, 3*block), pattern(2, 3*block)
	if mode == "strict" {
		must(t, err)
		copy(wantOne[5:], "first")
		copy(wantOne[2*block:], "third")
		copy(wantTwo[block:], "second")
	} else {
		fails(t, err, syscall.ENOTSUP)
	}
	expect(t, one, wantOne)
	expect(t, two, wantTwo)
	fails(t, splitfs.WriteAtomic(), syscall.EINVAL)
	fails(t, splitfs.WriteAtomic(splitfs.Range{File: one, Off: -1, Data: []byte("x")}), syscall.EINVAL)
	must(t, two.Close())
	fails(t, splitfs.WriteAtomic(splitfs.Range{File: one}, splitfs.Range{File: two}), os.ErrClosed)
}

func TestSwap(t *testing.T) {
	mode := volume(t)
	left, right := newFile(t, "left", pattern(1, 3*block)), newFile(t, "right", pattern(2, 3*block))
	err := splitfs.Swap(left, 0, right, block, 2*block)
	if mode == "plain" {
		fails(t, err, syscall.ENOTSUP)
		return
	}
	must(t, err)
	expect(t, left, append(pattern(2, 3*block)[block:], pattern(1, 3*block)[2*block:]...))
	expect(t, right, append(pattern(2, block), pattern(1, 2*block)...))
	fails(t, splitfs.Swap(left, 0, left, block, block), syscall.EINVAL)
	fails(t, splitfs.Swap(left, 0, right, 3*block, block), syscall.EINVAL)
	fails(t, splitfs.Swap(left, -1, right, 0, block), syscall.EINVAL)
}

// Goroutines change threads between calls, and errno is a thread's.
func TestGoroutines(t *testing.T) {
	volume(t)
	was := pattern(1, 64*block)
	f := newFile(t, "goroutines", was)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				off := int64((g*200 + i) % (60 * block))
				if err := f.WithPeek(off, block, func(data []byte) error {
					same(t, data, was[off:off+block])
					return nil
				}); err != nil {
					t.Error(err)
				}
				if _, err := splitfs.Open("not-there"); !errors.Is(err, syscall.ENOENT) {
					t.Error(err)
				}
				if _, err := f.Peek(-1, 1); !errors.Is(err, syscall.EINVAL) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// The example is another process, which has the library as well.
func TestExample(t *testing.T) {
	volume(t)
	decode := os.Getenv("TEST_DECODE")
	if decode == "" {
		t.Skip("TEST_DECODE is not set to the example")
	}
	content := pattern(4, 300000)
	f := newFile(t, "coded", []byte(base64.StdEncoding.EncodeToString(content)))
	view, err := f.Peek(0, 100)
	must(t, err)
	if out, err := exec.Command(decode, "coded", "decoded").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, view.Unpeek())
	decoded, err := splitfs.Open("decoded")
	must(t, err)
	defer decoded.Close()
	expect(t, decoded, content)
}

func BenchmarkPeek(b *testing.B) {
	volume(b)
	f := newFile(b, "bench", pattern(1, block))
	for b.Loop() {
		view, err := f.Peek(0, block)
		must(b, err)
		must(b, view.Unpeek())
	}
}

func BenchmarkReadAt(b *testing.B) {
	volume(b)
	f := newFile(b, "bench", pattern(1, block))
	for b.Loop() {
		_, err := f.ReadAt(make([]byte, block), 0)
		must(b, err)
	}
}
