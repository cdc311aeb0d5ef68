// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// broken refuses everything and remembers what it was asked.
type broken struct{ asked []promise.Use }

func (b *broken) Check(_ context.Context, use promise.Use) error {
	b.asked = append(b.asked, use)
	return fmt.Errorf("%w: no library", volume.ErrPrecondition)
}

// TestPublishKeepsPromises: a writer is looked at before it gets the volume, and not again once it has it; readers never are.
func TestPublishKeepsPromises(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	target := filepath.Join(f.dir, "pv-one", "mount")
	writer := PublishRequest{ID: rec.ID, StagingPath: f.staging("one"), Target: target, Pod: volume.Pod{Namespace: "default", Name: "pod", UID: "1"}}
	restart := func(promises Promises) {
		f.Shutdown()
		f.configs.Promises = promises
		f.start()
		f.must(f.agents.WaitReady(f.ctx, rec.ID))
	}
	refuser := &broken{}
	restart(refuser)
	if err := f.Publish(f.ctx, writer); err == nil {
		t.Fatal("published without the library")
	}
	if len(refuser.asked) != 1 || refuser.asked[0] != (promise.Use{VolumeID: rec.ID, Mode: volume.ModeStrict, PV: "pv-one", Pod: writer.Pod}) {
		t.Errorf("asked %+v", refuser.asked)
	}
	if mounted, err := mounts.At(target); err != nil || mounted != nil {
		t.Errorf("mounted: %+v, %v", mounted, err)
	}
	f.publish(rec, f.target("reader"), true)

	restart(nil)
	f.must(f.Publish(f.ctx, writer))
	restart(refuser)
	f.must(f.Publish(f.ctx, writer))
	if len(refuser.asked) != 1 {
		t.Errorf("a reader, or a pod that has the volume, was looked at: %+v", refuser.asked[1:])
	}

	// Recorded and not mounted: the node was rebooted, so the pod starts anew.
	f.must(f.mounter.Cleanup(target))
	if err := f.Publish(f.ctx, writer); err == nil {
		t.Error("published without the library after the mount had gone")
	}
	f.remove(rec, target, f.target("reader"))
}
