// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"errors"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestNearlyFull: where little is left on the file system of the backing files, and less than a volume has, the volume
// can still be made again by a call that is repeated, grown by what is left, and erased. XFS wants as much free space
// as it is asked to allocate, also where all of it is allocated already.
func TestNearlyFull(t *testing.T) {
	const size = 160 * volume.MiB
	m := onXFS(t, 72*volume.MiB)
	ctx := t.Context()
	available := func() int64 {
		t.Helper()
		bytes, err := m.Available(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	if err := m.Create(ctx, "a", size); err != nil {
		t.Fatal(err)
	}
	if err := m.Create(ctx, "b", (available()-8*volume.MiB)/volume.MiB*volume.MiB); err != nil {
		t.Fatal(err)
	}
	if err := m.Create(ctx, "a", size); err != nil {
		t.Errorf("making it again: %v", err)
	}
	if err := m.Grow(ctx, "a", size+4*volume.MiB); err != nil {
		t.Errorf("growing it by 4 MiB, %d are left: %v", available()/volume.MiB, err)
	}
	if err := m.Grow(ctx, "a", size+100*volume.MiB); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("growing it by more than is left: %v", err)
	}
	if have, onDisk := allocated(t, m.path("a")); have != size+4*volume.MiB || onDisk < have {
		t.Errorf("its size is %d, on disk %d", have, onDisk)
	}
	if err := m.Erase(ctx, "a", volume.EraseOverwrite); err != nil {
		t.Errorf("erasing it: %v", err)
	}
}
