// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestOverwriteReachesTheBlocks looks below the file system that the backing files are on: what was stored is not there
// any more, also where a file had shared its blocks; a file that is only removed leaves everything.
func TestOverwriteReachesTheBlocks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	ctx := context.Background()
	dir := mountXFS(t)
	m, err := New(Config{Dir: dir, Capacity: 200 * volume.MiB})
	must := fatal(t)
	must(err)
	const size = 4 * volume.MiB
	store := func(id, what string) {
		t.Helper()
		must(m.Create(ctx, id, size))
		f, err := os.OpenFile(m.path(id), os.O_WRONLY, 0)
		must(err)
		_, err = f.Write(bytes.Repeat([]byte(what), int(size)/len(what)))
		must(errors.Join(err, f.Sync(), f.Close()))
	}
	below := func(what string) int {
		t.Helper()
		mounted, err := os.Open(dir)
		must(err)
		must(errors.Join(unix.Syncfs(int(mounted.Fd())), mounted.Close()))
		image, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "xfs.img"))
		must(err)
		return bytes.Count(image, []byte(what))
	}
	store("left", "LEFT-OVER-BYTES.")
	must(m.Delete(ctx, "left"))
	if below("LEFT-OVER-BYTES.") == 0 {
		t.Fatal("a file that was removed left nothing; this test sees nothing")
	}
	store("shared", "SHARED----BYTES.")
	must(errors.Join(m.Reserve(ctx, "shared", "copy", size), m.Share(ctx, "shared", "copy")))
	must(m.Erase(ctx, "shared", volume.EraseOverwrite))
	must(m.Delete(ctx, "shared"))
	if n := below("SHARED----BYTES."); n != int(size)/16 {
		t.Errorf("%d of %d are left of a copy that shared", n, int(size)/16)
	}
	must(m.Erase(ctx, "copy", volume.EraseOverwrite))
	if n := below("SHARED----BYTES."); n != 0 {
		t.Errorf("%d are left after the copy was erased too", n)
	}
	store("plain", "OVERWRITE-BYTES.")
	dev, err := m.Attach(ctx, "plain")
	must(err)
	must(m.Erase(ctx, "plain", volume.EraseOverwrite))
	if found, err := loop.Find(m.path("plain")); err != nil || found != "" {
		t.Errorf("%s is still attached as %s, %v", dev, found, err)
	}
	if n := below("OVERWRITE-BYTES."); n != 0 {
		t.Errorf("%d are left", n)
	}
	if got, onDisk := allocated(t, m.path("plain")); got != size || onDisk < size {
		t.Errorf("size %d, on disk %d", got, onDisk)
	}
}

// TestErase: a discarded file keeps its size, for its space is counted until it is gone; a caller that has gone is not
// worked for.
func TestErase(t *testing.T) {
	m := newManager(t, 100*volume.MiB)
	ctx, cancel := context.WithCancel(context.Background())
	if err := errors.Join(m.Create(ctx, "a", 8*volume.MiB),
		os.WriteFile(m.path("a"), bytes.Repeat([]byte{1}, 8<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.Erase(ctx, "a", volume.EraseDiscard); err != nil {
		t.Fatal(err)
	}
	if size, onDisk := allocated(t, m.path("a")); size != 8*volume.MiB || onDisk != 0 {
		t.Errorf("size %d, on disk %d", size, onDisk)
	}
	if available, err := m.Available(ctx); err != nil || available != 92*volume.MiB {
		t.Errorf("available %d, %v", available, err)
	}
	for _, how := range []volume.Erase{volume.EraseDiscard, volume.EraseOverwrite} { // a copy that was interrupted at once
		if err := errors.Join(os.WriteFile(m.path("empty"), nil, 0o600), m.Erase(ctx, "empty", how)); err != nil {
			t.Errorf("%s of an empty file: %v", how, err)
		}
	}
	if err := m.Erase(ctx, "b", volume.EraseDiscard); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a device that is not there: %v", err)
	}
	cancel()
	if err := m.Erase(ctx, "a", volume.EraseOverwrite); !errors.Is(err, context.Canceled) {
		t.Errorf("for nobody: %v", err)
	}
}
