// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestStageFailsAgain: a service that is killed while it stages a volume leaves a mount. When the repeated call fails
// kubelet takes the volume for not staged and never unstages it, so the call undoes what the killed one left: the
// volume could not even be deleted otherwise. Where a pod has the volume it stays.
func TestStageFailsAgain(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging, target := f.stageAt(rec), f.target("one")
	f.must(splitfstest.WriteForeignFormat(staging))
	f.Shutdown()
	f.start()
	stage := StageRequest{ID: rec.ID, Path: staging}
	if err := f.Stage(f.ctx, stage); err == nil {
		t.Fatal("a volume of the future was staged")
	}
	if mounted, err := mounts.At(staging); err != nil || mounted != nil {
		t.Errorf("after a call that failed this is mounted: %+v, %v", mounted, err)
	}
	f.expectProblem(rec, Inaccessible, "StageFailed", "a format this version does not know")
	f.must(f.Delete(f.ctx, rec.ID))

	rec = f.create("two", volume.XFS, volume.MiB)
	staging = f.stageAt(rec)
	f.publish(rec, target, false)
	f.must(splitfstest.WriteForeignFormat(staging))
	f.Shutdown()
	f.start()
	stage = StageRequest{ID: rec.ID, Path: staging}
	if err := f.Stage(f.ctx, stage); err == nil {
		t.Error("a volume of the future was staged")
	}
	f.must(os.WriteFile(filepath.Join(target, "file"), nil, 0o644))
	f.remove(rec, target)
}
