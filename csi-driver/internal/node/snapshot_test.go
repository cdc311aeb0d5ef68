// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// TestSnapshots: a snapshot of a volume in use holds what was there, whatever happens to the volume afterwards; volumes
// made of it, and of the volume, can be used beside it at the same time, and may be larger.
func TestSnapshots(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		t.Run(fsType, func(t *testing.T) { snapshots(t, newFixture(t, ""), fsType) })
		t.Run(fsType+" byte by byte", func(t *testing.T) {
			f := newFixture(t, "")
			f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
			snapshots(t, f, fsType)
		})
	}
}

func (f *fixture) expectContent(path, want string) {
	f.t.Helper()
	if content, err := os.ReadFile(path); err != nil || string(content) != want {
		f.t.Errorf("read %q, %v; wanted %q", content, err, want)
	}
}

func (f *fixture) createCopy(name string, like *volume.Record, size int64, source volume.Source) *volume.Record {
	f.t.Helper()
	for range 2 { // the call is repeated
		rec, err := f.Create(f.ctx, CreateRequest{
			Name: name, FSType: like.FSType, Required: size, Source: &source,
			Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
		})
		f.must(err)
		like = rec
	}
	return like
}

func snapshots(t *testing.T, f *fixture, fsType string) {
	const size = 16 * volume.MiB
	rec := f.create("one", fsType, size)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	file := filepath.Join(f.target("one"), "file")
	f.must(os.WriteFile(file, []byte("before"), 0o644))
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	if again, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil); err != nil || again.ID != snapshot.ID ||
		!again.Taken.Equal(snapshot.Taken) {
		t.Errorf("a second call made %+v, %v", again, err)
	}
	f.must(os.WriteFile(file, []byte("after"), 0o644)) // it is not frozen any more

	restored := f.createCopy("restored", rec, 3*size, volume.Source{SnapshotID: snapshot.ID})
	clone := f.createCopy("clone", rec, 0, volume.Source{VolumeID: rec.ID})
	if restored.Size != 3*size || clone.Size != size {
		t.Errorf("the copies hold %d and %d", restored.Size, clone.Size)
	}
	for _, c := range []*volume.Record{restored, clone} {
		f.stageAt(c)
		f.publish(c, f.target(c.Name), false)
	}
	f.expectContent(filepath.Join(f.target("restored"), "file"), "before")
	f.expectContent(filepath.Join(f.target("clone"), "file"), "after")
	f.expectContent(file, "after")
	usage, err := filesystem.Measure(f.staging("restored"))
	f.must(err)
	if usage.Available < 3*size+rec.Overhead-volume.MiB { // one small file is stored
		t.Errorf("%d bytes are available in a copy of %d", usage.Available, 3*size)
	}
	f.must(os.WriteFile(filepath.Join(f.target("clone"), "file"), []byte("mine"), 0o644))
	f.expectContent(file, "after")

	// The original may go first.
	f.remove(rec, f.target("one"))
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
	f.expectContent(filepath.Join(f.target("restored"), "file"), "before")
	f.remove(restored, f.target("restored"))
	f.remove(clone, f.target("clone"))
	if entries, err := os.ReadDir(filepath.Join(f.dir, "emulated")); err != nil || len(entries) != 0 {
		t.Errorf("backing files left: %v, %v", entries, err)
	}
}

// TestCopiesRefused: what cannot be is refused with the reason, and nothing is left of it.
func TestCopiesRefused(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, 16*volume.MiB)
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	other := f.create("other", volume.XFS, volume.MiB)
	if _, err := f.CreateSnapshot(f.ctx, "snap", other.ID, nil); !errors.Is(err, volume.ErrExists) {
		t.Errorf("the same name for another volume: %v", err)
	}
	if _, err := f.CreateSnapshot(f.ctx, "none", volume.IDFromName("none"), nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a snapshot of nothing: %v", err)
	}
	elsewhere := volume.SnapshotID("snap", "node-2")
	if err := f.DeleteSnapshot(f.ctx, elsewhere); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("deleting a snapshot of another node: %v", err)
	}
	params := volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated}
	for name, c := range map[string]struct {
		req  CreateRequest
		want error
	}{
		"another file system": {CreateRequest{FSType: volume.Ext4, Source: &volume.Source{SnapshotID: snapshot.ID}},
			volume.ErrInvalid},
		"a device": {CreateRequest{Block: true, Source: &volume.Source{SnapshotID: snapshot.ID}},
			volume.ErrInvalid},
		"too small": {CreateRequest{FSType: volume.XFS, Limit: 4 * volume.MiB, Source: &volume.Source{
			SnapshotID: snapshot.ID,
		}}, volume.ErrOutOfRange},
		"another node's": {CreateRequest{FSType: volume.XFS, Source: &volume.Source{SnapshotID: elsewhere}},
			volume.ErrExhausted},
		"a volume elsewhere": {CreateRequest{FSType: volume.XFS, Source: &volume.Source{
			VolumeID: volume.IDFromName("none"),
		}}, volume.ErrExhausted},
		"one that is gone": {CreateRequest{FSType: volume.XFS, Source: &volume.Source{
			SnapshotID: volume.SnapshotID("gone", "node-1"),
		}}, volume.ErrNotFound},
	} {
		c.req.Name, c.req.Params = name, params
		if _, err := f.Create(f.ctx, c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := f.store.List(); err != nil || len(list) != 2 {
		t.Errorf("volumes: %v, %v", list, err)
	}
	f.must(errors.Join(f.DeleteSnapshot(f.ctx, snapshot.ID), f.Delete(f.ctx, rec.ID), f.Delete(f.ctx, other.ID)))
}

// plainManager is a manager that can do no more than it must.
type plainManager struct{ device.Manager }

// Attach says of a device that is not there what managers of persistent memory say.
func (m plainManager) Attach(ctx context.Context, id string) (string, error) {
	path, err := m.Manager.Attach(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", volume.ErrNotFound, err)
	}
	return path, err
}

// use starts the node service anew, with a manager in place of that of emulated devices.
func (f *fixture) use(m device.Manager) {
	f.t.Helper()
	f.Shutdown()
	f.configs.Managers = device.NewManagers(m)
	f.start()
}

// TestCopiesOfRawMemory: a copy of a raw block volume on persistent memory holds what its original was written to, and
// behind it nothing; a copy of one that nobody has seen shows nothing of what was in the memory before.
func TestCopiesOfRawMemory(t *testing.T) {
	const size = 5 * volume.MiB // no multiple of what is copied at once
	f := newFixture(t, "")
	emulated := f.configs.Managers[volume.DeviceEmulated]
	f.use(claimsPM{emulated})
	request := CreateRequest{
		Name: "raw", Block: true, Required: size, Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
	}
	rec, err := f.Create(f.ctx, request)
	f.must(err)
	fill := func(id string, c byte) {
		dev, err := emulated.Attach(f.ctx, id)
		f.must(errors.Join(err, os.WriteFile(dev, bytes.Repeat([]byte{c}, int(size)), 0), emulated.Detach(f.ctx, id)))
	}
	// copied returns what the pod of a copy of twice the size sees.
	copied := func(name string, source volume.Source) []byte {
		request := request
		request.Name, request.Required, request.Source = name, 2*size, &source
		made, err := f.Create(f.ctx, request)
		f.must(err)
		f.must(f.Stage(f.ctx, StageRequest{ID: made.ID, Path: f.staging(name), Block: true}))
		f.must(
			f.Publish(f.ctx, PublishRequest{ID: made.ID, StagingPath: f.staging(name), Target: f.target(name), Block: true}))
		got, err := os.ReadFile(f.target(name))
		f.must(err)
		f.remove(made, f.target(name))
		return got
	}
	fill(rec.ID, 'o') // what its memory held before
	if got := copied("unseen", volume.Source{VolumeID: rec.ID}); !bytes.Equal(got, make([]byte, 2*size)) {
		t.Error("a copy of what nobody has seen shows what was there before")
	}
	f.must(f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: f.staging("raw"), Block: true}))
	f.must(f.Unstage(f.ctx, rec.ID, f.staging("raw")))
	fill(rec.ID, 'n')
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	fill(rec.ID, 'x')
	for c, source := range map[byte]volume.Source{'n': {SnapshotID: snapshot.ID}, 'x': {VolumeID: rec.ID}} {
		got := copied(string(c), source)
		if !bytes.Equal(got, append(bytes.Repeat([]byte{c}, int(size)), make([]byte, size)...)) {
			t.Errorf("a copy of %c holds %d bytes, %d of them right", c, len(got), bytes.Count(got, []byte{c}))
		}
	}
	f.must(errors.Join(f.DeleteSnapshot(f.ctx, snapshot.ID), f.Delete(f.ctx, rec.ID)))
	if entries, err := os.ReadDir(filepath.Join(f.dir, "emulated")); err != nil || len(entries) != 0 {
		t.Errorf("backing files left: %v, %v", entries, err)
	}
}

// TestInterruptedCopyErased: a copy byte by byte that ends half way is erased as its class says, whether its device was
// made or not.
func TestInterruptedCopyErased(t *testing.T) {
	f := newFixture(t, "")
	f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
	rec := f.create("one", volume.XFS, volume.MiB)
	for _, made := range []bool{false, true} {
		half := &volume.Record{
			ID: volume.IDFromName("half"), Name: "half", Phase: volume.PhaseCreating, Mode: contract.Posix,
			Device: volume.DeviceEmulated, FSType: volume.XFS,
			Source: &volume.Source{VolumeID: rec.ID}, Erase: volume.EraseOverwrite, DeviceSize: rec.DeviceSize,
		}
		f.must(f.store.Put(half))
		if made {
			f.must(f.config.Managers[volume.DeviceEmulated].Create(f.ctx, half.ID, half.DeviceSize))
		}
		f.must(f.Delete(f.ctx, half.ID))
		f.must(f.eraseDeleted(f.ctx, &volume.Locks{}, half.ID))
		if _, err := f.store.Get(half.ID); !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("its device made: %t; it is still known: %v", made, err)
		}
	}
	f.must(f.Delete(f.ctx, rec.ID))
}

// TestFrozenWhenKilled: the users of a volume that was frozen when the service died go on when the next one starts.
func TestFrozenWhenKilled(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging := f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	rec, err := f.store.Get(rec.ID)
	f.must(err)
	rec.Frozen = true
	f.must(f.store.Put(rec))
	f.must(filesystem.Freeze(staging))
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(filepath.Join(f.target("one"), "file"), []byte("x"), 0o644) }()
	select {
	case err := <-written:
		t.Errorf("a frozen volume was written to: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	f.Shutdown()
	f.start()
	select {
	case err := <-written:
		f.must(err)
	case <-time.After(10 * time.Second):
		t.Fatal("the volume is still frozen")
	}
	f.remove(rec, f.target("one"))
}

// TestFilesAtRest: what a volume's large files at rest hold is not looked at while its writers wait.
func TestFilesAtRest(t *testing.T) {
	const large = 128 * volume.MiB
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t, "")
			f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
			rec := f.create("one", fsType, 2*large)
			f.stageAt(rec)
			f.publish(rec, f.target("one"), false)
			content := bytes.Repeat([]byte("0123456789abcdef"), int(large/16))
			f.must(os.WriteFile(filepath.Join(f.target("one"), "file"), content, 0o644))
			time.Sleep(2200 * time.Millisecond) // so that it is at rest
			rec, err := f.store.Get(rec.ID)
			f.must(err)
			made := &volume.Record{
				ID: volume.IDFromName("copy"), Name: "copy", Phase: volume.PhaseCreating, Mode: contract.Posix,
				Device: volume.DeviceEmulated, FSType: fsType, Source: &volume.Source{VolumeID: rec.ID},
				DeviceSize: rec.DeviceSize,
			}
			f.must(f.store.Put(made))
			c, err := f.newCopying(f.ctx, f.store, rec, made)
			f.must(err)
			cut := c.cutter.(*byteCopy)
			f.must(f.cutTogether(f.ctx, []*copying{c}))
			if cut.looked == 0 || cut.looked > large {
				t.Errorf("%d MiB of %d were looked at while the volume was frozen", cut.looked/volume.MiB,
					rec.DeviceSize/volume.MiB)
			}
			if !cut.changing || cut.files == nil {
				t.Errorf("in use: %t; its files were looked at: %t", cut.changing, cut.files != nil)
			}
			f.must(f.Delete(f.ctx, made.ID))
			f.remove(rec, f.target("one"))
		})
	}
}
