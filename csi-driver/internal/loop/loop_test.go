// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices")
	}
}

func makeFile(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func attach(t *testing.T, path string) string {
	t.Helper()
	dev, err := Attach(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Detach(context.Background(), path); err != nil {
			t.Error(err)
		}
	})
	return dev
}

func deviceSize(t *testing.T, dev string) int64 {
	t.Helper()
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func TestAttachIsIdempotentAndResizes(t *testing.T) {
	requireRoot(t)
	path := filepath.Join(t.TempDir(), "a.img")
	makeFile(t, path, 1<<20)
	dev := attach(t, path)
	if again := attach(t, path); again != dev {
		t.Errorf("attached to %s and to %s", dev, again)
	}
	if err := os.Truncate(path, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := Resize(dev); err != nil {
		t.Fatal(err)
	}
	if size := deviceSize(t, dev); size != 2<<20 {
		t.Errorf("the device has %d bytes", size)
	}
	for range 2 {
		if err := Detach(context.Background(), path); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := Find(path); err != nil || found != "" {
		t.Errorf("found %q, %v after Detach", found, err)
	}
}

// TestFindLooksAtTheFile: the same name in another directory is another file.
func TestFindLooksAtTheFile(t *testing.T) {
	requireRoot(t)
	one, two := filepath.Join(t.TempDir(), "same.img"), filepath.Join(t.TempDir(), "same.img")
	makeFile(t, one, 1<<20)
	makeFile(t, two, 1<<20)
	dev := attach(t, one)
	if found, err := Find(two); err != nil || found != "" {
		t.Errorf("found %q, %v for a file that is not attached", found, err)
	}
	if found, err := Find(one); err != nil || found != dev {
		t.Errorf("found %q, %v, attached is %s", found, err, dev)
	}
}

// detachInUse detaches a device that somebody holds, which the kernel does when they let go.
func detachInUse(t *testing.T) (path, dev string, holder *os.File) {
	t.Helper()
	requireRoot(t)
	path = filepath.Join(t.TempDir(), "busy.img")
	makeFile(t, path, 1<<20)
	dev = attach(t, path)
	holder, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := Detach(context.Background(), path); err != nil {
		t.Fatalf("detaching a device in use: %v", err)
	}
	return path, dev, holder
}

// TestDetachInUse: a device that somebody holds is detached by the kernel when they let go.
func TestDetachInUse(t *testing.T) {
	path, _, holder := detachInUse(t)
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Detach(context.Background(), path); err != nil {
		t.Error(err)
	}
	if found, err := Find(path); err != nil || found != "" {
		t.Errorf("still attached to %q, %v", found, err)
	}
}

func TestNoSuchFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.img")
	if found, err := Find(missing); err != nil || found != "" {
		t.Errorf("found %q, %v", found, err)
	}
	if err := Detach(context.Background(), missing); err != nil {
		t.Error(err)
	}
	if _, err := Attach(context.Background(), missing); err == nil {
		t.Error("attached a file that does not exist")
	}
}
