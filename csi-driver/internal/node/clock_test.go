// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// setClock has the node's clock set by a step, for all that is written down: what was written a moment ago is older by
// that step now. What is not written down is measured on the monotonic clock, which nobody sets.
func (f *fixture) setClock(step time.Duration) {
	f.t.Helper()
	for _, dir := range []string{f.configs.StateDir, f.configs.InjectDir, f.configs.AgentsDir} {
		f.must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Type()&fs.ModeSymlink != 0 {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			return os.Chtimes(path, time.Time{}, info.ModTime().Add(-step))
		}))
	}
	ids, err := f.store.IDs()
	f.must(err)
	for _, id := range ids {
		rec, err := f.store.Get(id)
		f.must(err)
		if !rec.StageFailed.IsZero() {
			rec.StageFailed = rec.StageFailed.Add(-step)
		}
		f.must(f.store.Put(rec))
	}
}

// TestClockSteps: where the node's clock is set forward by a day nothing is taken for old that was made a moment ago;
// where it is set back nothing stays for that long. What is served stays served.
func TestClockSteps(t *testing.T) {
	const day, soon = 24 * time.Hour, 50 * time.Millisecond
	for name, step := range map[string]time.Duration{"forward": day, "back": -day} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "")
			rec, failed := f.create("one", volume.XFS, volume.MiB), f.create("failed", volume.XFS, volume.MiB)
			f.configs.Claims = someClaims{"failed": failed.ID}
			f.must(os.WriteFile(f.configs.Library, []byte("library, version 2"), 0o644))
			f.Shutdown()
			f.start()
			f.stageAt(rec)
			if _, err := f.library.prepareForPod("just-made"); err != nil {
				t.Fatal(err)
			}
			failed.StageFailure, failed.StageFailed = "no memory", time.Now().UTC()
			f.must(f.store.Put(failed))
			f.expectProblem(failed, Inaccessible, reasonStageFailed, "no memory")

			f.setClock(step)
			f.looksAfter(podGrace, libraryGrace, 2, 1)
			f.reportOrphans(f.ctx)
			if found := f.Orphans(); len(found) > 0 {
				t.Errorf("a volume that was made a moment ago is an orphan: %+v", found)
			}
			f.expectHealthy(rec)
			// A failure of another time says nothing any more.
			failed, err := f.store.Get(failed.ID)
			f.must(err)
			f.expectHealthy(failed)

			time.Sleep(soon)
			f.looksAfter(soon, soon, 1, 0)
			f.config.ClaimGrace = soon
			f.reportOrphans(f.ctx)
			if found := f.Orphans(); len(found) != 1 || found[0].ID != rec.ID {
				t.Errorf("orphans: %+v", found)
			}
			f.remove(rec)
			f.must(f.Delete(f.ctx, failed.ID))
		})
	}
}

// looksAfter removes what nobody uses, and expects that so many versions of the library and directories of pods are
// there then.
func (f *fixture) looksAfter(ofPods, ofLibraries time.Duration, versions, pods int) {
	f.t.Helper()
	if _, err := f.library.removeUnused(f.t.TempDir(), ofLibraries); err != nil {
		f.t.Error(err)
	}
	f.must(f.library.removePods(map[string]bool{}, ofPods))
	entries, err := os.ReadDir(f.configs.InjectDir)
	f.must(err)
	have := len(slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !versionName.MatchString(e.Name()) }))
	if have != versions {
		f.t.Errorf("%d versions of the library, wanted %d", have, versions)
	}
	dirs, err := f.library.podDirs()
	f.must(err)
	if len(dirs) != pods {
		f.t.Errorf("directories of pods: %q, wanted %d", dirs, pods)
	}
}
