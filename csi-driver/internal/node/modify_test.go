// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// TestModify: a change is in the volume's state when the call returns, also of a volume in use; it can be repeated, and
// what cannot be changed stays as it is.
func TestModify(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	for range 2 {
		got, err := f.Modify(f.ctx, rec.ID, volume.Changes{Mode: contract.Sync, Erase: volume.EraseOverwrite})
		if err != nil || got.Mode != contract.Sync || got.Erase != volume.EraseOverwrite {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	f.Shutdown()
	f.start()
	if got, err := f.store.Get(rec.ID); err != nil || got.Mode != contract.Sync || got.Erase != volume.EraseOverwrite ||
		len(got.Published) != 1 {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	if list, err := f.Published(); err != nil || len(list) != 1 || list[0].Mode != contract.Sync {
		t.Errorf("published: %+v, %v", list, err)
	}
	honest := f.config.Managers
	f.config.Managers = device.NewManagers(claimsPM{honest[volume.DeviceEmulated]})
	if _, err := f.Modify(f.ctx, rec.ID, volume.Changes{Mode: contract.Posix, Erase: volume.EraseDiscard}); !errors.Is(
		err, volume.ErrInvalid) {
		t.Errorf("discard of persistent memory: %v", err)
	}
	f.config.Managers = honest
	if got, err := f.store.Get(rec.ID); err != nil || got.Mode != contract.Sync || got.Erase != volume.EraseOverwrite {
		t.Errorf("after a change that was refused: %+v, %v", got, err)
	}
	if _, err := f.Modify(f.ctx, rec.ID, volume.Changes{Erase: volume.EraseNone}); err != nil {
		t.Error(err)
	}
	if got, err := f.store.Get(rec.ID); err != nil || got.Mode != contract.Sync || got.Erase != "" || got.Version != 1 {
		t.Errorf("not to be erased any more: %+v, %v", got, err)
	}
	if _, err := f.Modify(f.ctx, volume.IDFromName("none"), volume.Changes{
		Mode: contract.Sync,
	}); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a volume that is not there: %v", err)
	}
	f.remove(rec, f.target("one"))
}
