// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func (f *fixture) expectProblem(rec *volume.Record, severity Severity, reason, message string) {
	f.t.Helper()
	problems, err := f.Health(rec.ID)
	f.must(err)
	for _, p := range problems {
		if p.Severity == severity && p.Reason == reason && strings.Contains(p.Message, message) {
			return
		}
	}
	f.t.Errorf("no %s/%s with %q in %+v", severity, reason, message, problems)
}

func (f *fixture) expectHealthy(rec *volume.Record) {
	f.t.Helper()
	if problems, err := f.Health(rec.ID); err != nil || len(problems) != 0 {
		f.t.Errorf("health: %+v, %v", problems, err)
	}
}

// shutDown makes XFS do what it does after an error in its journal.
func (f *fixture) shutDown(root string) {
	f.t.Helper()
	const xfsGoingDown, withoutFlush = 0x8004587d, 2
	dir, err := os.Open(root)
	f.must(err)
	defer dir.Close()
	f.must(unix.IoctlSetPointerInt(int(dir.Fd()), xfsGoingDown, withoutFlush))
}

// TestProblems: what the kernel knows of a volume's memory and file system, and why it could not be staged, is its
// health.
func TestProblems(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging := f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	f.expectHealthy(rec)

	// Bad blocks, in a sysfs of our own: a loop device has none.
	mounted, err := mounts.At(staging)
	f.must(err)
	sysfs := filepath.Join(f.dir, "sysfs")
	numbers := filepath.Join(sysfs, "dev", "block", fmt.Sprintf("%d:%d", mounted.Major, mounted.Minor))
	f.must(os.MkdirAll(numbers, 0o755))
	f.must(os.WriteFile(filepath.Join(numbers, "badblocks"), []byte("2048 8\n"), 0o644))
	f.config.Sysfs = sysfs
	f.expectProblem(rec, DataLoss, "BadBlocks", "4096 bytes")
	f.config.Sysfs = "/sys"
	f.expectHealthy(rec)

	// A file system that shut down, and is well again after it was mounted anew.
	f.shutDown(staging)
	f.expectProblem(rec, Inaccessible, "FileSystemError", "does not answer")
	f.must(f.Unpublish(f.ctx, rec.ID, f.target("one")))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.stageAt(rec)
	f.expectHealthy(rec)

	// A volume that could not be recovered.
	f.must(splitfstest.WriteForeignFormat(staging))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	if err := f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging}); err == nil {
		t.Error("a volume of the future was staged")
	}
	f.expectProblem(rec, Inaccessible, "StageFailed", "a format this version does not know")
	failed, err := f.store.Get(rec.ID)
	f.must(err)
	failed.StageFailed = failed.StageFailed.Add(-stageRetried) // the pod has gone, and kubelet with it
	f.must(f.store.Put(failed))
	if problems, err := f.problems(failed); err != nil || len(problems) != 0 {
		t.Errorf("a failure that nobody waits for: %v, %v", problems, err)
	}
	f.must(f.Delete(f.ctx, rec.ID))
}

// TestExt4Errors: an ext4 that found an error takes no more writes, says so, and is repaired when it is mounted anew.
func TestExt4Errors(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.Ext4, volume.MiB)
	staging := f.stageAt(rec)
	mounted, err := mounts.At(staging)
	f.must(err)
	f.expectHealthy(rec)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(mounted.Source), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		t.Skipf("this kernel cannot make ext4 report an error: %v", err)
	}
	f.expectProblem(rec, Inaccessible, "FileSystemError", "became read-only")
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.stageAt(rec)
	f.expectHealthy(rec)
	f.remove(rec)
}
