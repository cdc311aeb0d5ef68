// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// someClaims is a cluster that has these PersistentVolumes.
type someClaims map[string]string

func (c someClaims) HasVolume(_ context.Context, name, id string) (bool, error) {
	return c[name] == id, nil
}

func (f *fixture) statePath(rec *volume.Record) string {
	return filepath.Join(f.configs.StateDir, rec.ID+".json")
}

// TestOrphans: what is left behind is found and told once, and stays where it is.
func TestOrphans(t *testing.T) {
	f := newFixture(t, "")
	well, lost, attached, forgotten := f.create("well", volume.XFS, volume.MiB), f.create("lost", volume.XFS, volume.MiB),
		f.create("attached", volume.XFS, volume.MiB), f.create("forgotten", volume.XFS, volume.MiB)
	f.stageAt(well)
	f.publish(well, f.target("well"), false)
	f.stageAt(lost)
	image := func(rec *volume.Record) string { return filepath.Join(f.dir, "emulated", rec.ID+".img") }
	f.Shutdown()

	// State that is lost, a device that nobody uses, a volume that the cluster has no more.
	f.must(os.Rename(f.statePath(lost), f.statePath(lost)+".away"))
	_, err := loop.Attach(f.ctx, image(attached))
	f.must(err)
	f.configs.Claims = someClaims{"well": well.ID, "attached": attached.ID}
	f.configs.ClaimGrace = time.Nanosecond

	f.start()
	f.reportOrphans(f.ctx)
	var got []string
	for _, o := range f.Orphans() {
		got = append(got, string(o.Kind)+" "+o.ID)
		t.Log(o.Message)
	}
	slices.Sort(got)
	want := []string{"attachment " + attached.ID, "device " + lost.ID, "mount " + lost.ID, "state " + forgotten.ID}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, wanted %q", got, want)
	}
	if n := f.events.count("node/node-1 OrphanFound"); n != 4 {
		t.Errorf("%d events", n)
	}
	f.reportOrphans(f.ctx)
	if n := f.events.count("node/node-1 OrphanFound"); n != 4 {
		t.Errorf("%d events after a second look", n)
	}
	for _, rec := range []*volume.Record{well, lost, attached, forgotten} {
		if _, err := os.Stat(image(rec)); err != nil {
			t.Errorf("removed: %v", err)
		}
	}

	// Calls for them clean up: nothing that is repeated runs into what was left.
	f.must(os.Rename(f.statePath(lost)+".away", f.statePath(lost)))
	f.remove(well, f.target("well"))
	f.remove(lost)
	f.must(f.Delete(f.ctx, attached.ID))
	f.must(f.Delete(f.ctx, forgotten.ID))
	f.reportOrphans(f.ctx)
	if left := f.Orphans(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// lateLister lets calls come while devices are listed.
type lateLister struct {
	device.Manager
	device.Lister
	before, after func()
}

func (l *lateLister) List(ctx context.Context) ([]device.Found, error) {
	l.before()
	found, err := l.Lister.List(ctx)
	l.after()
	return found, err
}

// TestOrphansBesideCalls: what calls make, use and take away while it is looked for orphans is none. It would be told
// as one, and be in the metrics until the next look.
func TestOrphansBesideCalls(t *testing.T) {
	f := newFixture(t, "")
	inner := f.configs.Managers[volume.DeviceEmulated]
	lister := &lateLister{Manager: inner, Lister: inner.(device.Lister), before: func() {}, after: func() {}}
	f.use(lister)
	look := func(what string) {
		t.Helper()
		found, err := f.FindOrphans(f.ctx)
		f.must(err)
		if len(found) != 0 {
			t.Errorf("%s: %+v", what, found)
		}
		lister.before, lister.after = func() {}, func() {}
	}
	var rec *volume.Record
	lister.before = func() { rec = f.create("one", volume.XFS, volume.MiB) }
	look("a volume that is made")
	lister.before = func() { f.stageAt(rec) }
	look("a volume that is staged")
	lister.before = func() { f.publish(rec, f.target("one"), false) }
	look("a volume that is published")
	lister.after = func() { f.remove(rec, f.target("one")) }
	look("a volume that is removed")
}

// TestReboot: mounts, loop devices and processes are gone, the state is there; kubelet's calls bring everything back.
func TestReboot(t *testing.T) {
	f := newFixture(t, "")
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		rec := f.create(fsType, fsType, volume.MiB)
		f.stageAt(rec)
		f.publish(rec, f.target(fsType), false)
		f.must(os.WriteFile(filepath.Join(f.target(fsType), "file"), []byte("before"), 0o644))
	}
	f.Shutdown()
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		unmount := mountutils.NewWithoutSystemd("")
		f.must(errors.Join(unmount.Unmount(f.target(fsType)), unmount.Unmount(f.staging(fsType))))
		f.must(loop.Detach(f.ctx, filepath.Join(f.dir, "emulated", volume.IDFromName(fsType)+".img")))
	}
	checkNoLeaks(t, f.dir)

	f.start()
	f.reportOrphans(f.ctx)
	if left := f.Orphans(); len(left) != 0 {
		t.Errorf("found %+v after a reboot", left)
	}
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		rec, err := f.Volume(volume.IDFromName(fsType))
		f.must(err)
		if len(rec.Published) != 0 {
			t.Errorf("published still at %v", rec.Published)
		}
		if problems, err := f.Health(rec.ID); err != nil || len(problems) != 1 || problems[0].Reason != "NotMounted" {
			t.Errorf("health after a reboot: %+v, %v", problems, err)
		}
		f.stageAt(rec)
		f.publish(rec, f.target(fsType), false)
		if content, err := os.ReadFile(filepath.Join(f.target(fsType), "file")); err != nil || string(content) != "before" {
			t.Errorf("read %q, %v", content, err)
		}
		if problems, err := f.Health(rec.ID); err != nil || len(problems) != 0 {
			t.Errorf("health: %+v, %v", problems, err)
		}
		f.remove(rec, f.target(fsType))
	}
}
