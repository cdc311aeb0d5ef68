// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

func (f *fixture) createErased(name string, how volume.Erase, source *volume.Source) (*volume.Record, error) {
	return f.Create(f.ctx, CreateRequest{
		Name: name, FSType: volume.XFS, Required: volume.MiB, Source: source,
		Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated, Erase: how},
	})
}

// eraser runs the eraser until the returned function is called.
func (f *fixture) eraser() (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() {
		f.EraseDeleted(ctx, &volume.Locks{})
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (f *fixture) available() int64 {
	f.t.Helper()
	n, err := f.configs.Managers[volume.DeviceEmulated].Available(f.ctx)
	f.must(err)
	return n
}

func (f *fixture) image(id string) string { return filepath.Join(f.dir, "emulated", id+".img") }

func (f *fixture) nothingLeft() bool {
	f.t.Helper()
	volumes, err := f.store.IDs()
	f.must(err)
	snapshots, err := f.snapshots.IDs()
	f.must(err)
	files, err := os.ReadDir(filepath.Join(f.dir, "emulated"))
	f.must(err)
	return len(volumes)+len(snapshots)+len(files) == 0
}

// TestErased: deleting does not wait until the bytes are gone; until then the volume takes its space and cannot be had,
// and a service that is started again goes on.
func TestErased(t *testing.T) {
	const secret = "what nobody may find"
	for _, how := range []volume.Erase{volume.EraseOverwrite, volume.EraseDiscard} {
		t.Run(string(how), func(t *testing.T) {
			f := newFixture(t, "")
			full := f.available()
			rec, err := f.createErased("one", how, nil)
			f.must(err)
			f.stageAt(rec)
			f.publish(rec, f.target("one"), false)
			f.must(os.WriteFile(filepath.Join(f.target("one"), "file"), []byte(secret), 0o644))
			snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
			f.must(err)
			if _, err := f.createErased("clone", volume.EraseNone, &volume.Source{
				SnapshotID: snapshot.ID,
			}); !errors.Is(err, volume.ErrInvalid) {
				t.Errorf("a copy that leaves the bytes: %v", err)
			}
			var files []*os.File
			for _, id := range []string{rec.ID, snapshot.ID} {
				file, err := os.Open(f.image(id))
				f.must(err)
				defer file.Close()
				if content, err := os.ReadFile(file.Name()); id == snapshot.ID &&
					(err != nil || !bytes.Contains(content, []byte(secret))) {
					t.Fatalf("the device of %s does not hold what was stored: %v", id, err)
				}
				files = append(files, file)
			}
			taken := f.available()

			f.remove(rec, f.target("one"))
			f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
			for range 2 {
				f.must(f.Delete(f.ctx, rec.ID))
				f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
			}
			f.must(f.Unpublish(f.ctx, rec.ID, f.target("one")))
			f.must(f.Unstage(f.ctx, rec.ID, f.staging("one")))
			if now := f.available(); now > taken {
				t.Errorf("%d bytes can be had while what was stored is still there, %d before", now, taken)
			}
			f.refusedWhileErased(rec, snapshot)

			f.Shutdown()
			f.start()
			stop := f.eraser()
			defer stop()
			eventually(t, "everything is gone", f.nothingLeft)
			if now := f.available(); now != full {
				t.Errorf("%d bytes can be had, %d at the start", now, full)
			}
			for _, file := range files {
				content := make([]byte, rec.DeviceSize)
				_, err := file.ReadAt(content, 0)
				f.must(err)
				if i := slices.IndexFunc(content, func(b byte) bool { return b != 0 }); i >= 0 {
					t.Errorf("%s: byte %d was not erased", file.Name(), i)
				}
			}
			if list, err := f.erasures(); err != nil || len(list) != 0 {
				t.Errorf("still being erased: %v, %v", list, err)
			}
			_, err = f.createErased("one", how, nil)
			f.must(err)
			f.must(f.Delete(f.ctx, rec.ID))
			eventually(t, "a volume that nobody used is gone", f.nothingLeft)
		})
	}
}

func (f *fixture) refusedWhileErased(rec, snapshot *volume.Record) {
	f.t.Helper()
	for what, call := range map[string]func() error{
		"staged":    func() error { return f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: f.staging("one")}) },
		"made anew": func() error { _, err := f.createErased("one", rec.Erase, nil); return err },
		"copied": func() error {
			_, err := f.createErased("two", rec.Erase, &volume.Source{VolumeID: rec.ID})
			return err
		},
		"snapshot": func() error { _, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil); return err },
	} {
		if err := call(); !errors.Is(err, volume.ErrBusy) || !strings.Contains(err.Error(), "being erased") {
			f.t.Errorf("%s while it is erased: %v", what, err)
		}
	}
	if found, err := f.FindOrphans(f.ctx); err != nil || len(found) != 0 {
		f.t.Errorf("orphans: %v, %v", found, err)
	}
	if list, err := f.Snapshots("", ""); err != nil || len(list) != 0 {
		f.t.Errorf("snapshots: %v, %v", list, err)
	}
	list, err := f.erasures()
	if err != nil || len(list) != 2 || list[0].Bytes != rec.DeviceSize || list[1].ID != snapshot.ID {
		f.t.Errorf("being erased: %+v, %v", list, err)
	}
}

// badEraser is the emulated manager that cannot erase until it is repaired, or that never ends.
type badEraser struct {
	device.Manager
	broken chan error
	began  chan struct{}
}

func (badEraser) CheckErase(volume.Erase) error { return nil }

func (b badEraser) Erase(ctx context.Context, id string, how volume.Erase) error {
	select {
	case b.began <- struct{}{}:
	default:
	}
	select {
	case err, broken := <-b.broken:
		if broken {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.Manager.(device.Eraser).Erase(ctx, id, how)
}

// TestEraseFails: a failure is told and tried again; nothing is forgotten before it is erased, also not when the
// service ends.
func TestEraseFails(t *testing.T) {
	f := newFixture(t, "")
	bad := badEraser{f.configs.Managers[volume.DeviceEmulated], make(chan error), make(chan struct{}, 1)}
	f.config.Managers = device.NewManagers(bad)
	rec, err := f.createErased("one", volume.EraseOverwrite, nil)
	f.must(err)
	f.must(f.Delete(f.ctx, rec.ID))
	stop := f.eraser()
	<-bad.began
	stop()
	if _, err := f.store.Get(rec.ID); err != nil || f.events.has("node/node-1 "+events.ReasonEraseFailed) {
		t.Fatalf("after an erasure that was interrupted: %v; events %v", err, f.events.list)
	}

	f.Shutdown()
	f.configs.Managers = f.config.Managers
	f.start()
	stop = f.eraser()
	defer stop()
	failure := errors.New("the disk is away")
	bad.broken <- failure
	eventually(t, "the volume says what is wrong", func() bool {
		reports, err := f.Reports(f.ctx)
		f.must(err)
		return len(reports) == 1 && slices.ContainsFunc(reports[0].Problems, func(p Problem) bool {
			return p.Reason == events.ReasonEraseFailed && strings.Contains(p.Message, failure.Error())
		})
	})
	bad.broken <- failure
	if list, err := f.erasures(); err != nil || len(list) != 1 || !errors.Is(list[0].Err, failure) {
		t.Errorf("being erased: %+v, %v", list, err)
	}
	close(bad.broken)
	f.must(f.Delete(f.ctx, rec.ID)) // does not wait for the next attempt
	eventually(t, "everything is gone", f.nothingLeft)
	if n := f.events.count("node/node-1 " + events.ReasonEraseFailed); n != 1 {
		t.Errorf("%d events: %v", n, f.events.list)
	}
}

// TestMissingDeviceIsNotErased: a device that cannot be found is not taken for one that was erased, except when it may
// never have been.
func TestMissingDeviceIsNotErased(t *testing.T) {
	f := newFixture(t, "")
	rec, err := f.createErased("one", volume.EraseOverwrite, nil)
	f.must(err)
	away := f.image(rec.ID) + ".away"
	f.must(os.Rename(f.image(rec.ID), away))
	f.must(f.Delete(f.ctx, rec.ID))
	stop := f.eraser()
	defer stop()
	eventually(t, "it is told", func() bool { return f.events.has("node/node-1 " + events.ReasonEraseFailed) })
	f.must(os.Rename(away, f.image(rec.ID)))
	f.must(f.Delete(f.ctx, rec.ID))
	eventually(t, "everything is gone", f.nothingLeft)
}

// TestHalfMadeCopyIsErased: what an interrupted copy holds of its original is erased before it is made anew, or given
// up.
func TestHalfMadeCopyIsErased(t *testing.T) {
	f := newFixture(t, "")
	stop := f.eraser()
	defer func() { stop() }()
	rec, err := f.createErased("one", volume.EraseOverwrite, nil)
	f.must(err)
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	clone, err := f.createErased("clone", volume.EraseOverwrite, &volume.Source{VolumeID: rec.ID})
	f.must(err)
	snapshot.Phase, clone.Phase = volume.PhaseCreating, volume.PhaseCreating // as a service leaves it that was killed
	f.must(f.snapshots.Put(snapshot))
	f.must(f.store.Put(clone))
	f.must(os.Remove(f.image(clone.ID))) // killed before it was made
	image, err := os.Open(f.image(snapshot.ID))
	f.must(err)
	defer image.Close()
	again := func(what string, call func() error) {
		t.Helper()
		if err := call(); !errors.Is(err, volume.ErrBusy) || !strings.Contains(err.Error(), "being erased") {
			t.Errorf("%s begun anew: %v", what, err)
		}
		eventually(t, what+" is made anew", func() bool {
			err := call()
			if err != nil && !errors.Is(err, volume.ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	again("the snapshot", func() error { _, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil); return err })
	again("the clone", func() error {
		_, err := f.createErased("clone", volume.EraseOverwrite, &volume.Source{VolumeID: rec.ID})
		return err
	})
	content := make([]byte, rec.DeviceSize)
	_, err = image.ReadAt(content, 0)
	f.must(err)
	if slices.ContainsFunc(content, func(b byte) bool { return b != 0 }) {
		t.Error("the half of the snapshot was not erased")
	}
	f.must(errors.Join(f.Delete(f.ctx, clone.ID), f.Delete(f.ctx, rec.ID), f.DeleteSnapshot(f.ctx, snapshot.ID)))
	eventually(t, "everything is gone", f.nothingLeft)
}

// TestErasedVolumeIsMadeAnew: what the eraser still has in its queue of a volume that is gone, because calls were
// repeated, does not touch one of the same name that was made since.
func TestErasedVolumeIsMadeAnew(t *testing.T) {
	f := newFixture(t, "")
	bad := badEraser{f.configs.Managers[volume.DeviceEmulated], make(chan error), make(chan struct{}, 1)}
	f.config.Managers = device.NewManagers(bad)
	deleted := func(name string) *volume.Record {
		rec, err := f.createErased(name, volume.EraseOverwrite, nil)
		f.must(err)
		f.must(f.Delete(f.ctx, rec.ID))
		return rec
	}
	rec := deleted("one")
	deleted("other")
	stop := f.eraser()
	defer stop()
	<-bad.began
	f.must(f.Delete(f.ctx, rec.ID)) // again, while it is erased
	bad.broken <- nil
	<-bad.began // now it is the other's turn
	again, err := f.createErased("one", volume.EraseOverwrite, nil)
	f.must(err)
	f.stageAt(again)
	last := deleted("last")
	close(bad.broken)
	eventually(t, "the eraser has seen all of its queue", func() bool {
		_, err := f.store.Get(last.ID)
		return errors.Is(err, volume.ErrNotFound)
	})
	if _, err := os.Stat(f.image(again.ID)); err != nil {
		t.Errorf("the device of the volume that was made anew: %v", err)
	}
	if now, err := f.Volume(again.ID); err != nil || now.Staged == nil {
		t.Errorf("the volume that was made anew: %+v, %v", now, err)
	}
	f.remove(again)
	eventually(t, "everything is gone", f.nothingLeft)
}

// TestErasePersistentMemory: zeros are written to the device itself; there is no discard.
func TestErasePersistentMemory(t *testing.T) {
	f := newFixture(t, "")
	f.config.Managers = device.NewManagers(claimsPM{f.configs.Managers[volume.DeviceEmulated]})
	request := CreateRequest{
		Name: "raw", Block: true, Required: volume.MiB,
		Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated, Erase: volume.EraseDiscard},
	}
	if _, err := f.Create(f.ctx, request); !errors.Is(err, volume.ErrInvalid) ||
		!strings.Contains(err.Error(), "overwrite") {
		t.Errorf("discard: %v", err)
	}
	request.Params.Erase = volume.EraseOverwrite
	rec, err := f.Create(f.ctx, request)
	f.must(err)
	f.must(f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: f.staging("raw"), Block: true}))
	dev, err := f.config.Managers[volume.DeviceEmulated].Attach(f.ctx, rec.ID)
	f.must(err)
	f.must(os.WriteFile(dev, bytes.Repeat([]byte{'x'}, int(rec.DeviceSize)), 0))
	image, err := os.Open(f.image(rec.ID))
	f.must(err)
	defer image.Close()
	f.must(f.Unstage(f.ctx, rec.ID, f.staging("raw")))
	f.must(f.Delete(f.ctx, rec.ID))
	stop := f.eraser()
	defer stop()
	eventually(t, "everything is gone", f.nothingLeft)
	content := make([]byte, rec.DeviceSize)
	_, err = image.ReadAt(content, 0)
	f.must(err)
	if slices.ContainsFunc(content, func(b byte) bool { return b != 0 }) {
		t.Error("the device was not overwritten")
	}
}

// erasures is what monitoring sees.
func (f *fixture) erasures() ([]Erasure, error) {
	reports, err := f.Reports(f.ctx)
	if err != nil {
		return nil, err
	}
	return f.Erasures(reports)
}

// TestErasuresOfReports: records that were read for the reports are not read again.
func TestErasuresOfReports(t *testing.T) {
	f := newFixture(t, "")
	rec := &volume.Record{ID: volume.IDFromName("nowhere"), Phase: volume.PhaseErasing, DeviceSize: 7}
	list, err := f.Erasures([]Report{{Record: rec}, {Record: &volume.Record{ID: "ready", Phase: volume.PhaseReady}}})
	if want := (Erasure{ID: rec.ID, Bytes: 7}); err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("being erased: %+v, %v", list, err)
	}
}
