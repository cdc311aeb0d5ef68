// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"errors"
	"os"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestSharedSpaceIsKept: as long as a copy shares blocks with its original, the space for which it was reserved looks
// free and is not: whoever writes to one of the two needs it. Nobody else gets it, and all of it comes back when the
// copy is deleted.
func TestSharedSpaceIsKept(t *testing.T) {
	// XFS wants what it unshares twice for a moment.
	m := onXFS(t, 72*volume.MiB)
	ctx := t.Context()
	must := fatal(t)
	const size = 64 * volume.MiB
	fill := func(id string) error {
		f, err := os.OpenFile(m.path(id), os.O_WRONLY, 0)
		if err == nil {
			err = errors.Join(zero(f, 0, size), f.Sync(), f.Close())
		}
		return err
	}
	available := func() int64 {
		t.Helper()
		bytes, err := m.Available(ctx)
		must(err)
		return bytes
	}
	must(m.Create(ctx, "a", size))
	must(fill("a"))
	before := available()
	for range 2 {
		must(m.Reserve(ctx, "a", "b", size))
		must(m.Share(ctx, "a", "b"))
		if after := available(); after > before-size+volume.MiB {
			t.Errorf("%d MiB are available beside a copy of 64 MiB, %d were before it", after/volume.MiB, before/volume.MiB)
		}
		must(m.Delete(ctx, "b"))
		if after := available(); after < before-volume.MiB {
			t.Errorf("%d MiB are available after a copy was deleted, %d were before it", after/volume.MiB, before/volume.MiB)
		}
	}
	must(m.Reserve(ctx, "a", "b", size))
	must(m.Share(ctx, "a", "b"))
	must(m.Create(ctx, "c", available()/volume.MiB*volume.MiB))
	if err := m.Unshare(ctx, "b", 0, func(int64) error { return nil }); err != nil {
		t.Errorf("the copy's own space: %v", err)
	}
	if err := fill("a"); err != nil {
		t.Errorf("writing to the original: %v", err)
	}
	if err := fill("b"); err != nil {
		t.Errorf("writing to the copy: %v", err)
	}
}
