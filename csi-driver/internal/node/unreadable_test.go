// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// ofNewerDriver is a state file that this driver leaves alone.
const ofNewerDriver = `{"version":99}`

// TestUnpublishOfUnreadableVolume: a pod can end whatever became of its volume's state, and the volume stays what it
// is.
func TestUnpublishOfUnreadableVolume(t *testing.T) {
	for what, content := range map[string]string{"of a newer driver": ofNewerDriver, "damaged": "{"} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, "")
			rec := f.create("one", volume.XFS, volume.MiB)
			f.stageAt(rec)
			f.publish(rec, f.target("one"), false)
			good, err := os.ReadFile(f.statePath(rec))
			f.must(err)
			f.must(os.WriteFile(f.statePath(rec), []byte(content), 0o600))
			for range 2 {
				if err := f.Unpublish(f.ctx, rec.ID, f.target("one")); err != nil {
					t.Errorf("the pod cannot end: %v", err)
				}
			}
			if err := f.Unstage(f.ctx, rec.ID, f.staging("one")); err == nil {
				t.Error("a volume was unstaged of which nothing is known")
			}
			if err := f.Delete(f.ctx, rec.ID); err == nil {
				t.Error("a volume was deleted of which nothing is known")
			}
			f.must(os.WriteFile(f.statePath(rec), good, 0o600)) // the newer driver is back
			f.Shutdown()
			f.start()
			if now, err := f.Volume(rec.ID); err != nil || len(now.Published) != 0 {
				t.Errorf("after it: %+v, %v", now, err)
			}
			f.remove(rec)
		})
	}
}

// TestSnapshotBesideUnreadable: a snapshot is found, and a group, whatever became of the state of another. A list that
// lacks one is an error: who reads it would take that one for deleted.
func TestSnapshotBesideUnreadable(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	other := volume.SnapshotID("other", f.configs.Name)
	path := filepath.Join(f.configs.StateDir, snapshotsDir, other+".json")
	f.must(os.WriteFile(path, []byte(ofNewerDriver), 0o600))
	if found, err := f.Snapshots("", snapshot.ID); err != nil || len(found) != 1 || found[0].ID != snapshot.ID {
		t.Errorf("the snapshot: %v, %v", found, err)
	}
	if found, err := f.Snapshots("", other); err == nil {
		t.Errorf("the one that cannot be read: %v", found)
	}
	if found, err := f.Snapshots(rec.ID, ""); err == nil {
		t.Errorf("all: %v", found)
	}
	if found, err := f.Snapshots("", volume.SnapshotID("none", f.configs.Name)); err != nil || len(found) != 0 {
		t.Errorf("one that there is not: %v, %v", found, err)
	}
	f.must(os.Remove(path))
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
	f.must(f.Delete(f.ctx, rec.ID))
}

// TestTellUnservedBesideUnreadable: pods are told of their programs whatever became of the state of another volume.
func TestTellUnservedBesideUnreadable(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	program, root := filepath.Join(dir, "splitfs"), filepath.Join(dir, "root")
	must(os.WriteFile(program, []byte(`#!/bin/sh
echo '{"unserved":{"enforcement":"on","refused":1,"processes":[
  {"pid":5,"did":"refuse","pod":"uid-a","program":"/bin/x","path":"/data/f"}]}}'
`), 0o755))
	must(errors.Join(os.Mkdir(root, 0o700), os.Mkdir(filepath.Join(root, ".splitfs"), 0o700)))
	must(os.WriteFile(filepath.Join(root, unservedFile), nil, 0o600))
	state := filepath.Join(dir, "volumes")
	store, err := volume.OpenStore(state)
	must(err)
	must(store.Put(&volume.Record{
		ID: volume.IDFromName("one"), Phase: volume.PhaseReady, Staged: &volume.Staging{Path: root},
		Published: map[string]volume.Publish{
			"/a": {Pod: volume.Pod{Namespace: "shop", Name: "a", UID: "uid-a"}, Unserved: contract.Refuse},
		},
	}))
	must(os.WriteFile(filepath.Join(state, volume.IDFromName("other")+".json"), []byte(ofNewerDriver), 0o600))
	told := &recordedEvents{}
	n := &Node{config: Config{Name: "n1", CLI: splitfs.CLI{Binary: program}, Events: told}, store: store}
	w := &unservedWatch{looked: map[string]time.Time{}, told: map[unservedEvent]bool{}}
	for range 2 {
		n.lookForUnserved(t.Context(), w)
	}
	if len(told.list) != 1 || told.list[0] != "pod/shop/a UnservedRefused" {
		t.Errorf("told %q", told.list)
	}
}
