// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestOriginalGone: of a snapshot, or a group of them, that was interrupted before it was cut nothing is left when its
// originals are deleted before the call is repeated. That call fails for good, nobody was ever told the snapshot's ID,
// so nobody would delete it.
func TestOriginalGone(t *testing.T) {
	f := newFixture(t, "")
	f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
	interrupt := func(id string, do func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				if now := f.Working(id); now != nil && now.Job != nil && now.Job.Done > 0 {
					cancel()
				}
			}
		}()
		if err := do(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("the interrupted call: %v", err)
		}
	}
	expectNothing := func() {
		t.Helper()
		ids, err := f.snapshots.IDs()
		f.must(err)
		devices, err := filepath.Glob(filepath.Join(f.dir, "emulated", "*"))
		f.must(err)
		if len(ids) > 0 || len(devices) > 0 {
			t.Errorf("left are the snapshots %q and the devices %q", ids, devices)
		}
	}
	used := func(name string) *volume.Record {
		rec := f.create(name, volume.XFS, 64*volume.MiB)
		f.stageAt(rec)
		f.publish(rec, f.target(name), false)
		f.must(os.WriteFile(filepath.Join(f.target(name), "file"), make([]byte, 8*volume.MiB), 0o644))
		return rec
	}

	rec := used("one")
	snapshot := func(ctx context.Context) error {
		_, err := f.CreateSnapshot(ctx, "snap", rec.ID, nil)
		return err
	}
	interrupt(volume.SnapshotID("snap", "node-1"), snapshot)
	f.remove(rec, f.target("one"))
	if err := snapshot(f.ctx); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a snapshot of a volume that is gone: %v", err)
	}
	expectNothing()

	rec = used("two")
	group := func(ctx context.Context) error {
		_, err := f.CreateGroupSnapshot(ctx, "group", []string{rec.ID}, nil)
		return err
	}
	interrupt(f.GroupMemberID("group", rec.ID), group)
	f.remove(rec, f.target("two"))
	if err := group(f.ctx); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a group of a volume that is gone: %v", err)
	}
	expectNothing()
}
