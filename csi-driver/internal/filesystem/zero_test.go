// SPDX-License-Identifier: Apache-2.0

package filesystem

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

// TestZero overwrites a device that holds a file system, to its last byte, but not one that somebody holds, and not for
// a caller that has gone.
func TestZero(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices")
	}
	const size = zeroStep + 3*volume.MiB + 512
	ctx, image := context.Background(), filepath.Join(t.TempDir(), "zero.img")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(image, nil, 0o600))
	must(os.Truncate(image, size))
	dev, err := loop.Attach(ctx, image)
	must(err)
	t.Cleanup(func() {
		if err := loop.Detach(ctx, image); err != nil {
			t.Error(err)
		}
	})
	must(Format(ctx, dev, volume.Ext4))
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	must(err)
	defer f.Close()
	ends := map[int64]string{zeroStep - 4: "junction", size - 4: "end."}
	for at, text := range ends {
		_, err := f.WriteAt([]byte(text), at)
		must(err)
	}
	must(f.Sync())

	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := Zero(gone, dev, 0, Whole); !errors.Is(err, context.Canceled) {
		t.Errorf("for nobody: %v", err)
	}
	holder, err := os.OpenFile(dev, os.O_RDONLY|unix.O_EXCL, 0)
	must(err)
	if err := Zero(ctx, dev, 0, Whole); err == nil {
		t.Error("a device that somebody holds was overwritten")
	}
	must(holder.Close())
	if fsType, err := Type(ctx, dev); err != nil || fsType != volume.Ext4 {
		t.Errorf("the refused calls left %q, %v", fsType, err)
	}

	must(Zero(ctx, dev, 0, Whole))
	if fsType, err := Type(ctx, dev); err != nil || fsType != "" {
		t.Errorf("the device still holds %q, %v", fsType, err)
	}
	for at, text := range ends {
		have := make([]byte, len(text))
		_, err := f.ReadAt(have, at)
		must(err)
		if !bytes.Equal(have, make([]byte, len(text))) {
			t.Errorf("at %d is %q", at, have)
		}
	}
}
