// SPDX-License-Identifier: Apache-2.0

package blank

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestCheck: a device is blank, holds a file system, holds data that nobody marked, at its begin or its end.
func TestCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices")
	}
	ctx := context.Background()
	image := filepath.Join(t.TempDir(), "blank.img")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(image, nil, 0o600))
	must(os.Truncate(image, 64<<20))
	device, err := loop.Attach(ctx, image)
	must(err)
	t.Cleanup(func() {
		if err := loop.Detach(context.Background(), image); err != nil {
			t.Error(err)
		}
	})
	must(Check(ctx, device))
	write := func(content string, offset int64) {
		t.Helper()
		f, err := os.OpenFile(device, os.O_WRONLY, 0)
		must(err)
		_, err = f.WriteAt([]byte(content), offset)
		must(err)
		must(f.Sync())
		must(f.Close())
	}
	for _, offset := range []int64{0, 3 << 20, 64<<20 - 1} {
		write("x", offset)
		if err := Check(ctx, device); err == nil || !strings.Contains(err.Error(), "no program has marked") {
			t.Errorf("data at byte %d: %v", offset, err)
		}
		write("\x00", offset)
		must(Check(ctx, device))
	}
	must(filesystem.Format(ctx, device, volume.Ext4))
	if err := Check(ctx, device); err == nil || !strings.Contains(err.Error(), "holds ext4") {
		t.Errorf("a file system: %v", err)
	}
	must(Wipe(ctx, device))
	if types, err := Signatures(ctx, device); err != nil || len(types) != 0 {
		t.Errorf("after wiping: %v, %v", types, err)
	}
	if err := Check(ctx, device); err == nil {
		t.Error("a device whose file system lost its signature is blank")
	}
	if err := Check(ctx, "/dev/nonexistent"); err == nil {
		t.Error("a device that is not there is blank")
	}
}
