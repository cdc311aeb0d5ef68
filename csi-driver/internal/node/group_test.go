// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/emulated"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// usedVolumes are volumes in use.
func (f *fixture) usedVolumes(names ...string) (records []*volume.Record, ids []string) {
	f.t.Helper()
	for _, name := range names {
		rec := f.create(name, volume.XFS, volume.MiB)
		f.stageAt(rec)
		f.publish(rec, f.target(name), false)
		records, ids = append(records, rec), append(ids, rec.ID)
	}
	return records, ids
}

// writeInTurn writes rising numbers, each to one volume and then to the next, until stop is closed. That a number is
// durable on one volume comes before it is written to the next.
func writeInTurn(stop <-chan struct{}, paths ...string) error {
	var files []*os.File
	for _, path := range paths {
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	for i := 1; ; i++ {
		for _, file := range files {
			if _, err := file.WriteAt([]byte(strconv.Itoa(1000000000+i)), 0); err != nil {
				return err
			}
			if err := file.Sync(); err != nil {
				return err
			}
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// TestGroupOfOneMoment: what a group of snapshots holds was there at one moment, also where a program writes to one
// volume after the other; its snapshots can be used like all others.
func TestGroupOfOneMoment(t *testing.T) {
	t.Run("shared", func(t *testing.T) {
		f := newFixture(t, "")
		f.use(f.onReflinks())
		groupOfOneMoment(t, f)
	})
	t.Run("byte by byte", func(t *testing.T) {
		f := newFixture(t, "")
		f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
		groupOfOneMoment(t, f)
	})
}

func groupOfOneMoment(t *testing.T, f *fixture) {
	records, ids := f.usedVolumes("one", "two", "three")
	var files []string
	for _, rec := range records {
		files = append(files, filepath.Join(f.target(rec.Name), "number"))
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- writeInTurn(stop, files...) }()
	eventually(t, "the last volume is written to", func() bool {
		info, err := os.Stat(files[2])
		return err == nil && info.Size() > 0
	})
	released := 0
	group, err := f.CreateGroupSnapshot(f.ctx, "group", ids, func() { released++ })
	f.must(err)
	close(stop)
	f.must(<-ended)
	if len(group) != 3 || released != 1 {
		t.Fatalf("made %d snapshots, released the volumes %d times", len(group), released)
	}
	again, err := f.CreateGroupSnapshot(f.ctx, "group", ids, nil)
	f.must(err)
	numbers := map[string]int{}
	for i, snapshot := range group {
		if again[i].ID != snapshot.ID || !again[i].Taken.Equal(group[0].Taken) {
			t.Errorf("the same call again made %+v of %+v", again[i], snapshot)
		}
		c := f.createCopy("restored-"+strconv.Itoa(i), records[0], 0, volume.Source{SnapshotID: snapshot.ID})
		f.stageAt(c)
		f.publish(c, f.target(c.Name), false)
		text, err := os.ReadFile(filepath.Join(f.target(c.Name), "number"))
		f.must(err)
		numbers[snapshot.Source.VolumeID], err = strconv.Atoi(string(text))
		f.must(err)
		f.remove(c, f.target(c.Name))
	}
	first, last := numbers[ids[0]], numbers[ids[2]]
	if second := numbers[ids[1]]; first < second || second < last || first > last+1 {
		t.Errorf("the volumes hold %d, %d and %d: these were never there together", first, second, last)
	}
	if list, err := f.Snapshots("", ""); err != nil || len(list) != 3 || list[0].Group == nil {
		t.Errorf("listed %v, %v", list, err)
	}
	checkGroupDeletion(t, f, group, ids)
	for _, rec := range records {
		f.remove(rec, f.target(rec.Name))
	}
	f.noDevices()
}

// onReflinks is the manager of emulated devices whose backing files can share blocks.
func (f *fixture) onReflinks() device.Manager {
	f.t.Helper()
	manager, err := emulated.New(emulated.Config{Dir: f.reflinks(4 * volume.GiB), Capacity: 3 * volume.GiB})
	f.must(err)
	return manager
}

// noDevices says that no device is left.
func (f *fixture) noDevices() {
	f.t.Helper()
	for _, m := range f.config.Managers {
		lister, ok := m.(device.Lister)
		if p, plain := m.(plainManager); plain {
			lister, ok = p.Manager.(device.Lister)
		}
		if !ok {
			f.t.Fatalf("%s devices are not listed", m.Name())
		}
		if found, err := lister.List(f.ctx); err != nil || len(found) != 0 {
			f.t.Errorf("devices left: %v, %v", found, err)
		}
	}
}

// checkGroupDeletion deletes a group, which is not deleted in part.
func checkGroupDeletion(t *testing.T, f *fixture, group []*volume.Record, ids []string) {
	t.Helper()
	id := group[0].Group.ID
	if err := f.DeleteSnapshot(f.ctx, group[1].ID); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("one of a group was deleted: %v", err)
	}
	if _, err := f.CreateGroupSnapshot(f.ctx, "group", ids[:2], nil); !errors.Is(err, volume.ErrExists) {
		t.Errorf("the same name for other volumes: %v", err)
	}
	mismatch := []string{group[0].ID}
	if err := f.DeleteGroupSnapshot(f.ctx, id, mismatch); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("deleted by other snapshots than it has: %v", err)
	}
	if _, err := f.GroupSnapshot(id, mismatch); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("found by other snapshots than it has: %v", err)
	}
	elsewhere := volume.GroupID("group", "node-2")
	if err := f.DeleteGroupSnapshot(f.ctx, elsewhere, nil); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("deleting a group of another node: %v", err)
	}
	all := []string{group[2].ID, group[0].ID, group[1].ID}
	f.must(f.DeleteGroupSnapshot(f.ctx, id, all))
	f.must(f.DeleteGroupSnapshot(f.ctx, id, all))
	if _, err := f.GroupSnapshot(id, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("it is there after its deletion: %v", err)
	}
}

// secondFails is a manager with room for one copy. Where it shares storage it fails in the middle of the moment.
type secondFails struct {
	device.Manager
	device.Copier
	shared int
}

var errSecond = errors.New("no second copy")

func (m *secondFails) Share(ctx context.Context, from, to string) error {
	if m.shared++; m.shared > 1 {
		return errSecond
	}
	return m.Copier.Share(ctx, from, to)
}

// TestGroupAllOrNone: when a snapshot of a group cannot be cut there is none of them, nothing is left, and the volumes
// go on.
func TestGroupAllOrNone(t *testing.T) {
	f := newFixture(t, "")
	inner := f.onReflinks()
	copier, ok := inner.(device.Copier)
	if !ok {
		t.Fatal("emulated devices have no Copier")
	}
	failing := &secondFails{Manager: inner, Copier: copier}
	f.use(failing)
	records, ids := f.usedVolumes("one", "two")
	_, err := f.CreateGroupSnapshot(f.ctx, "group", ids, nil)
	if failing.shared != 2 {
		t.Errorf("%d were shared", failing.shared)
	}
	if !errors.Is(err, errSecond) {
		t.Errorf("failed with %v", err)
	}
	if list, err := f.snapshots.List(); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	for _, rec := range records {
		f.must(os.WriteFile(filepath.Join(f.target(rec.Name), "after"), []byte("x"), 0o644)) // not frozen
	}
	elsewhere := append([]string{volume.IDFromName("elsewhere")}, ids...)
	if _, err := f.CreateGroupSnapshot(f.ctx, "other", elsewhere, nil); !errors.Is(err, volume.ErrPrecondition) ||
		!strings.Contains(err.Error(), "on one node") {
		t.Errorf("a group of several nodes: %v", err)
	}
	for _, rec := range records {
		f.remove(rec, f.target(rec.Name))
	}
	f.use(inner)
	f.noDevices()
}

// TestGroupInterrupted: a group of which not all snapshots are cut when the service dies is not there, and is made anew
// of a later moment; one of which all are is finished.
func TestGroupInterrupted(t *testing.T) {
	f := newFixture(t, "")
	records, ids := f.usedVolumes("one", "two")
	write := func(text string) {
		for _, rec := range records {
			f.must(os.WriteFile(filepath.Join(f.target(rec.Name), "file"), []byte(text), 0o644))
		}
	}
	write("before")
	group, err := f.CreateGroupSnapshot(f.ctx, "group", ids, nil)
	f.must(err)
	id := group[0].Group.ID
	// As a service leaves it that dies between the two writes which say that they are cut.
	group[0].Phase, group[0].Cut = volume.PhaseCreating, true
	group[1].Phase, group[1].Cut = volume.PhaseCreating, false
	f.must(errors.Join(f.snapshots.Put(group[0]), f.snapshots.Put(group[1])))
	f.Shutdown()
	f.start()
	if _, unfinished, err := f.Unfinished(); err != nil || len(unfinished) != 0 {
		t.Errorf("a part of a group would be finished: %v, %v", unfinished, err)
	}
	if list, err := f.Snapshots("", ""); err != nil || len(list) != 0 {
		t.Errorf("a part of a group is shown: %v, %v", list, err)
	}
	if _, err := f.GroupSnapshot(id, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a part of a group is one: %v", err)
	}
	write("after")
	earlier := group[0].Taken
	group, err = f.CreateGroupSnapshot(f.ctx, "group", ids, nil)
	f.must(err)
	for i, snapshot := range group {
		if !snapshot.Taken.After(earlier) {
			t.Errorf("%s was taken at %s, as before", snapshot.ID, snapshot.Taken.Format(time.RFC3339Nano))
		}
		c := f.createCopy("restored-"+strconv.Itoa(i), records[0], 0, volume.Source{SnapshotID: snapshot.ID})
		f.stageAt(c)
		f.publish(c, f.target(c.Name), false)
		f.expectContent(filepath.Join(f.target(c.Name), "file"), "after")
		f.remove(c, f.target(c.Name))
	}
	// All are cut, and not whole yet.
	for _, snapshot := range group {
		snapshot.Phase, snapshot.Cut = volume.PhaseCreating, true
		f.must(f.snapshots.Put(snapshot))
	}
	if found, err := f.GroupSnapshot(id, nil); err != nil || len(found) != 2 {
		t.Errorf("a group that is cut is not there: %v, %v", found, err)
	}
	if _, unfinished, err := f.Unfinished(); err != nil || len(unfinished) != 2 {
		t.Errorf("unfinished: %v, %v", unfinished, err)
	}
	group, err = f.CreateGroupSnapshot(f.ctx, "group", ids, nil)
	f.must(err)
	for _, snapshot := range group {
		if snapshot.Phase != volume.PhaseReady {
			t.Errorf("%s is %s", snapshot.ID, snapshot.Phase)
		}
	}
	// The service dies while it deletes the group.
	group[0].Phase = volume.PhaseDeleting
	f.must(f.snapshots.Put(group[0]))
	if _, err := f.CreateGroupSnapshot(f.ctx, "group", ids, nil); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("made while it is deleted: %v", err)
	}
	f.Shutdown()
	f.start()
	f.must(f.DeleteGroupSnapshot(f.ctx, id, nil))
	for _, rec := range records {
		f.remove(rec, f.target(rec.Name))
	}
	f.noDevices()
}

// TestGroupErased: the snapshots of a group whose volumes are to be erased are erased, too.
func TestGroupErased(t *testing.T) {
	f := newFixture(t, "")
	rec, err := f.Create(f.ctx, CreateRequest{
		Name: "secret", FSType: volume.XFS, Required: volume.MiB,
		Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated, Erase: volume.EraseOverwrite},
	})
	f.must(err)
	plain := f.create("plain", volume.XFS, volume.MiB)
	group, err := f.CreateGroupSnapshot(f.ctx, "group", []string{rec.ID, plain.ID}, nil)
	f.must(err)
	id := group[0].Group.ID
	f.must(f.DeleteGroupSnapshot(f.ctx, id, nil))
	left, err := f.members(id)
	if err != nil || len(left) != 1 || left[0].Phase != volume.PhaseErasing {
		t.Errorf("left: %+v, %v", left, err)
	}
	for _, member := range left {
		f.must(f.eraseDeleted(f.ctx, &volume.Locks{}, member.ID))
	}
	f.must(errors.Join(f.Delete(f.ctx, rec.ID), f.Delete(f.ctx, plain.ID)))
	f.must(f.eraseDeleted(f.ctx, &volume.Locks{}, rec.ID))
	if list, err := f.snapshots.List(); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}
