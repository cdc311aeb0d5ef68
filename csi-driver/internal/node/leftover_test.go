// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/namespace"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestDeleteLeftover: what this node has no state of is deleted when nothing is left of it anywhere, not when nobody
// could look.
func TestDeleteLeftover(t *testing.T) {
	f := newFixture(t, "")
	selector, err := nvdimm.ParseSelector([]string{nvdimm.All})
	f.must(err)
	namespaces, err := namespace.New(namespace.Config{Regions: selector, Percent: 100, Map: nvdimm.MapMem}, &nvdimm.Tool{})
	f.must(err)
	f.configs.Managers[volume.DeviceNamespace] = namespaces
	ndctl := func(script string) {
		f.must(os.WriteFile(filepath.Join(f.dir, "ndctl"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	t.Setenv("PATH", f.dir+":"+os.Getenv("PATH"))

	id, snapshot := volume.IDFromName("lost"), volume.SnapshotID("lost", f.configs.Name)
	for id, remove := range map[string]func() error{
		id: func() error { return f.Delete(f.ctx, id) }, snapshot: func() error { return f.DeleteSnapshot(f.ctx, snapshot) },
	} {
		image := filepath.Join(f.dir, "emulated", id+".img")
		f.must(os.WriteFile(image, nil, 0o600))
		ndctl("echo broken memory >&2; exit 1")
		for range 2 {
			if err := remove(); err == nil || !strings.Contains(err.Error(), "broken memory") ||
				!strings.Contains(err.Error(), id) {
				t.Errorf("%s is deleted, and nobody could look: %v", id, err)
			}
		}
		ndctl("exit 0") // there is no persistent memory
		f.must(remove())
		if _, err := os.Stat(image); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was left of %s: %v", id, err)
		}
	}
}

// TestLeftoverInUse: a volume whose state is lost is not deleted while it is mounted.
func TestLeftoverInUse(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	f.must(f.agents.Stop(f.ctx, rec.ID))
	f.must(os.Remove(f.statePath(rec)))
	for range 2 {
		if err := f.Delete(f.ctx, rec.ID); !errors.Is(err, volume.ErrPrecondition) {
			t.Errorf("deleted while a pod has it: %v", err)
		}
	}
	if _, err := os.Stat(f.image(rec.ID)); err != nil {
		t.Errorf("its device: %v", err)
	}
	f.must(f.Unpublish(f.ctx, rec.ID, f.target("one")))
	f.must(f.Unstage(f.ctx, rec.ID, f.staging("one")))
	f.must(f.Delete(f.ctx, rec.ID))
	if _, err := os.Stat(f.image(rec.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its device after it: %v", err)
	}
}
