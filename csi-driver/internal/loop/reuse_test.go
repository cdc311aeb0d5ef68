// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAttachTakesBack: a device that is attached again while the kernel waits to detach it stays attached when whoever
// held it lets go. Its number would be the next file's otherwise, and its user would write to that.
func TestAttachTakesBack(t *testing.T) {
	path, dev, holder := detachInUse(t)
	if again := attach(t, path); again != dev {
		t.Errorf("attached to %s and to %s", dev, again)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(path); err != nil || found != dev {
		t.Errorf("found %q, %v after somebody else let go of %s", found, err, dev)
	}
}

// TestAttachIsWritable: that a device was read-only for its last user is nothing to the next one.
func TestAttachIsWritable(t *testing.T) {
	requireRoot(t)
	one, two := filepath.Join(t.TempDir(), "one.img"), filepath.Join(t.TempDir(), "two.img")
	makeFile(t, one, 1<<20)
	makeFile(t, two, 1<<20)
	dev := attach(t, one)
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 1); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Detach(context.Background(), one); err != nil {
		t.Fatal(err)
	}
	if again := attach(t, two); again != dev {
		t.Skipf("the next device is %s and not %s", again, dev)
	}
	if f, err = os.OpenFile(dev, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
