// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestDiscardedSpaceIsKept: what the user of a raw block volume discards, as each mkfs does by default, goes back to
// the file system of the backing files and stays promised to him. Nobody else gets it.
func TestDiscardedSpaceIsKept(t *testing.T) {
	m := onXFS(t, 16*volume.MiB)
	ctx := t.Context()
	must := fatal(t)
	const size = 64 * volume.MiB
	must(m.Create(ctx, "a", size))
	before, err := m.Available(ctx)
	must(err)
	dev, err := m.Attach(ctx, "a")
	must(err)
	t.Cleanup(func() {
		if err := m.Detach(context.Background(), "a"); err != nil {
			t.Error(err)
		}
	})
	if out, err := exec.Command("blkdiscard", "--force", dev).CombinedOutput(); err != nil {
		t.Skipf("this kernel's loop devices know no discard: %v: %s", err, out)
	}
	if _, onDisk := allocated(t, m.path("a")); onDisk > size/2 {
		t.Skipf("%d bytes are allocated after the discard", onDisk)
	}
	after, err := m.Available(ctx)
	must(err)
	if after > before+volume.MiB {
		t.Errorf("%d MiB are available after 64 MiB were discarded, %d were before", after/volume.MiB, before/volume.MiB)
	}
	must(m.Create(ctx, "b", after/volume.MiB*volume.MiB))
	f, err := os.OpenFile(dev, os.O_WRONLY, 0)
	must(err)
	if err := errors.Join(zero(f, 0, size), f.Sync(), f.Close()); err != nil {
		t.Errorf("writing to all of the volume: %v", err)
	}
}
