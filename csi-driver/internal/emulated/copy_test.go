// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestCopy copies devices where files can share blocks: the bytes are the same, the space is taken, and the two
// are independent.
func TestCopy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	testCopy(t, mountXFS(t))
}

// TestNotShared: where files cannot share blocks that is said, and nothing else.
func TestNotShared(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	dir, mounter := t.TempDir(), mountutils.NewWithoutSystemd("")
	if err := mounter.Mount("tmpfs", dir, "tmpfs", []string{"size=16m"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mounter.Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	m, err := New(Config{Dir: dir, Capacity: 100 * volume.MiB})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := errors.Join(m.Create(ctx, "a", volume.MiB), m.Reserve(ctx, "a", "b", volume.MiB)); err != nil {
		t.Fatal(err)
	}
	if err := m.Share(ctx, "a", "b"); !errors.Is(err, device.ErrNotShared) {
		t.Errorf("sharing on tmpfs: %v", err)
	}
}

// mountXFS returns a directory where files can share blocks.
func mountXFS(t *testing.T) string {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	image, mountPath := filepath.Join(dir, "xfs.img"), filepath.Join(dir, "mount")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 400*volume.MiB),
		os.Mkdir(mountPath, 0o700)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.xfs", "-q", "-m", "reflink=1", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dev, err := loop.Attach(ctx, image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(ctx, image); err != nil {
			t.Error(err)
		}
	})
	mounter := mountutils.NewWithoutSystemd("")
	if err := mounter.Mount(dev, mountPath, "xfs", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mounter.Unmount(mountPath); err != nil {
			t.Error(err)
		}
	})
	return mountPath
}

// onXFS is a manager of 1 GiB at most whose backing files are on a small XFS of their own.
func onXFS(t *testing.T, minFree int64) *Manager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	m, err := New(Config{Dir: mountXFS(t), Capacity: volume.GiB, MinFree: minFree})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fatal returns a function that ends the test where there is an error.
func fatal(t *testing.T) func(err error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func testCopy(t *testing.T, dir string) {
	ctx := context.Background()
	m, err := New(Config{Dir: dir, Capacity: 100 * volume.MiB})
	must := fatal(t)
	must(err)
	const size = 20 * volume.MiB
	must(m.Create(ctx, "a", size))
	write := func(id string, at int64, content string) {
		t.Helper()
		f, err := os.OpenFile(m.path(id), os.O_WRONLY, 0)
		must(err)
		_, err = f.WriteAt([]byte(content), at)
		must(errors.Join(err, f.Close()))
	}
	write("a", 0, "first")
	write("a", size-4, "last")
	must(os.WriteFile(m.path("b"), bytes.Repeat([]byte("old"), 1000), 0o600)) // an earlier call was interrupted
	for range 2 {
		must(m.Reserve(ctx, "a", "b", size+volume.MiB))
		must(m.Share(ctx, "a", "b"))
		var steps []int64
		must(m.Unshare(ctx, "b", 0, func(at int64) error { steps = append(steps, at); return nil }))
		if len(steps) != 1 || steps[0] != size+volume.MiB {
			t.Errorf("unshared in the steps %v", steps)
		}
	}
	write("a", 0, "later")
	content, err := os.ReadFile(m.path("b"))
	must(err)
	want := make([]byte, size+volume.MiB)
	copy(want, "first")
	copy(want[size-4:], "last")
	if !bytes.Equal(content, want) {
		t.Error("the copy has other bytes")
	}
	if have, onDisk := allocated(t, m.path("b")); have != size+volume.MiB || onDisk < have {
		t.Errorf("the copy's size is %d, on disk %d", have, onDisk)
	}
	if err := m.Reserve(ctx, "a", "c", 100*volume.MiB); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("a copy beyond the capacity: %v", err)
	}
}
