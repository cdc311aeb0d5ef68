// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/emulated"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// stoppedCopy ends what is going on when a copy has been made of its original and shares nothing yet.
type stoppedCopy struct {
	device.Manager
	device.Copier
	stop func()
}

func (m *stoppedCopy) Unshare(ctx context.Context, to string, start int64, done func(at int64) error) error {
	if m.stop != nil {
		m.stop()
		return ctx.Err()
	}
	return m.Copier.Unshare(ctx, to, start, done)
}

// TestCutCopy: a snapshot that was cut when the service ended holds what was there then, whatever becomes of the
// volume.
func TestCutCopy(t *testing.T) {
	f := newFixture(t, "")
	inner := f.configs.Managers[volume.DeviceEmulated]
	manager := &stoppedCopy{Manager: inner, Copier: inner.(device.Copier)}
	f.use(manager)
	rec := f.create("one", volume.XFS, 16*volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	file := filepath.Join(f.target("one"), "file")
	f.must(os.WriteFile(file, []byte("before"), 0o644))

	ctx, cancel := context.WithCancel(f.ctx)
	manager.stop = cancel
	released := 0
	if _, err := f.CreateSnapshot(ctx, "snap", rec.ID, func() { released++ }); !errors.Is(err, context.Canceled) ||
		released != 1 {
		t.Fatalf("the interrupted call: %v, the volume was released %d times", err, released)
	}
	listed, err := f.Snapshots(rec.ID, "")
	f.must(err)
	if len(listed) != 1 || listed[0].Phase != volume.PhaseCreating || listed[0].Taken.IsZero() {
		t.Fatalf("snapshots that are cut: %+v", listed)
	}
	f.must(os.WriteFile(file, []byte("after"), 0o644))
	f.remove(rec, f.target("one"))
	f.Shutdown()
	manager.stop = nil
	f.start()
	volumes, snapshots, err := f.Unfinished()
	f.must(err)
	if len(volumes) != 0 || len(snapshots) != 1 {
		t.Fatalf("unfinished are %v and %v", volumes, snapshots)
	}
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	if snapshot.Phase != volume.PhaseReady || snapshot.Job != nil || !snapshot.Taken.Equal(listed[0].Taken) {
		t.Errorf("the snapshot is %+v, it was cut at %v", snapshot, listed[0].Taken)
	}
	restored := f.createCopy("restored", rec, 0, volume.Source{SnapshotID: snapshot.ID})
	f.stageAt(restored)
	f.publish(restored, f.target("restored"), false)
	f.expectContent(filepath.Join(f.target("restored"), "file"), "before")
	f.remove(restored, f.target("restored"))
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
}

// killedAtCut ends what is going on when a copy shares its original's blocks and nothing says so yet.
type killedAtCut struct {
	*emulated.Manager
	stop func()
}

func (m killedAtCut) Share(ctx context.Context, from, to string) error {
	if err := m.Manager.Share(ctx, from, to); err != nil {
		return err
	}
	m.stop()
	return ctx.Err()
}

// killedAtUnshare ends what is going on when it is written down that a copy was cut.
type killedAtUnshare struct {
	*emulated.Manager
	stop func()
}

func (m killedAtUnshare) Unshare(ctx context.Context, _ string, _ int64, _ func(at int64) error) error {
	m.stop()
	return ctx.Err()
}

// TestSharedAcrossRestart: what a copy shares with its original is needed as soon as one of the two is written to. A
// service that was started anew since the copy was cut promises it to nobody, whoever asks first.
func TestSharedAcrossRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		kill func(m *emulated.Manager, stop func()) device.Manager
	}{
		{"before the cut is written down", func(m *emulated.Manager, stop func()) device.Manager {
			return killedAtCut{m, stop}
		}},
		{"after it", func(m *emulated.Manager, stop func()) device.Manager { return killedAtUnshare{m, stop} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "")
			dir := f.reflinks(2 * volume.GiB)
			restarted := func() *emulated.Manager {
				m, err := emulated.New(emulated.Config{Dir: dir, Capacity: 3 * volume.GiB})
				f.must(err)
				return m
			}
			first := restarted()
			f.use(first)
			rec := f.create("one", volume.XFS, 16*volume.MiB)
			f.stageAt(rec)
			f.must(f.Unstage(f.ctx, rec.ID, f.staging(rec.Name)))
			f.must(rewrite(first.File(rec.ID))) // what was never written to is not shared
			before, err := first.Available(f.ctx)
			f.must(err)

			ctx, cancel := context.WithCancel(f.ctx)
			f.use(c.kill(first, cancel))
			if _, err := f.CreateSnapshot(ctx, "snap", rec.ID, nil); !errors.Is(err, context.Canceled) {
				t.Fatalf("the interrupted call: %v", err)
			}
			f.Shutdown()

			second := restarted()
			f.use(second)
			if now, err := second.Available(f.ctx); err != nil || now > before-rec.DeviceSize+volume.MiB {
				t.Errorf("%d MiB are available beside a copy of %d MiB that shares all of them, %d were before it (%v)",
					now/volume.MiB, rec.DeviceSize/volume.MiB, before/volume.MiB, err)
			}
			snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
			f.must(err)
			if now, err := second.Available(f.ctx); err != nil || now < before-rec.DeviceSize-8*volume.MiB {
				t.Errorf("%d MiB are available beside a whole copy of %d MiB, %d were before it (%v)", now/volume.MiB,
					rec.DeviceSize/volume.MiB, before/volume.MiB, err)
			}
			f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
			f.must(f.Delete(f.ctx, rec.ID))
		})
	}
}

// rewrite writes what is in a file to it, in place.
func rewrite(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// fullForCopies has no room for what a copy shared with its original.
type fullForCopies struct {
	device.Manager
	device.Copier
	full bool
}

func (m *fullForCopies) Unshare(ctx context.Context, to string, start int64, done func(at int64) error) error {
	if m.full {
		return volume.ErrExhausted
	}
	return m.Copier.Unshare(ctx, to, start, done)
}

// TestCutCopyStaysOnItsNode: a new volume whose device is here already is not made on another node for want of room: it
// would be here too, for ever.
func TestCutCopyStaysOnItsNode(t *testing.T) {
	f := newFixture(t, "")
	inner := f.configs.Managers[volume.DeviceEmulated]
	manager := &fullForCopies{Manager: inner, Copier: inner.(device.Copier), full: true}
	f.use(manager)
	rec := f.create("one", volume.XFS, volume.MiB)
	request := CreateRequest{
		Name: "clone", FSType: volume.XFS, Required: volume.MiB, Source: &volume.Source{VolumeID: rec.ID},
		Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
	}
	if _, err := f.Create(f.ctx, request); !errors.Is(err, volume.ErrUnavailable) || !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("a copy that is cut, and has no room: %v", err)
	}
	manager.full = false
	clone, err := f.Create(f.ctx, request)
	f.must(err)
	if clone.Phase != volume.PhaseReady {
		t.Errorf("the copy is %+v", clone)
	}
	f.must(errors.Join(f.Delete(f.ctx, clone.ID), f.Delete(f.ctx, rec.ID)))
}

// TestCopyGoesOn: a copy byte by byte that was interrupted goes on where it was, and holds what the volume holds when
// it is cut.
func TestCopyGoesOn(t *testing.T) {
	f := newFixture(t, "")
	f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
	rec := f.create("one", volume.XFS, 64*volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	file := filepath.Join(f.target("one"), "file")
	f.must(os.WriteFile(file, []byte("before"), 0o644))
	id := volume.SnapshotID("snap", "node-1")
	ctx, cancel := context.WithCancel(f.ctx)
	go func() {
		for ctx.Err() == nil {
			if now := f.Working(id); now != nil && now.Job != nil && now.Job.Done > 0 {
				cancel()
			}
		}
	}()
	if _, err := f.CreateSnapshot(ctx, "snap", rec.ID, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted call: %v", err)
	}
	half := f.Working(id)
	if half == nil || half.Cut || half.Job == nil || half.Job.Kind != volume.JobCopy || half.Job.Done == 0 {
		t.Fatalf("after the interruption the record is %+v", half)
	}
	f.must(os.WriteFile(file, []byte("after"), 0o644))
	f.Shutdown()
	f.start()
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	f.must(err)
	restored := f.createCopy("restored", rec, 0, volume.Source{SnapshotID: snapshot.ID})
	f.stageAt(restored)
	f.publish(restored, f.target("restored"), false)
	f.expectContent(filepath.Join(f.target("restored"), "file"), "after")
	f.remove(restored, f.target("restored"))
	f.remove(rec, f.target("one"))
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
}

// TestFreezeLimit: where writers would have to wait for longer than they may there is no snapshot, nothing is left of
// it, and they go on.
func TestFreezeLimit(t *testing.T) {
	f := newFixture(t, "")
	f.configs.FreezeLimit = time.Nanosecond
	f.use(plainManager{f.configs.Managers[volume.DeviceEmulated]})
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	if _, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("a snapshot that holds writers up: %v", err)
	}
	if left := f.Working(volume.SnapshotID("snap", "node-1")); left != nil {
		t.Errorf("left is %+v", left)
	}
	f.must(os.WriteFile(filepath.Join(f.target("one"), "file"), []byte("x"), 0o644))
	f.remove(rec, f.target("one"))
	if snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil); err == nil {
		t.Errorf("a snapshot of a volume that is gone: %+v", snapshot)
	}
}

// TestShortFreeze: where files share blocks, the writers of a volume of 64 GiB wait for less than a second while a
// snapshot is made of it.
func TestShortFreeze(t *testing.T) {
	f := newFixture(t, "")
	const size = 64 * volume.GiB
	dir := f.reflinks(3 * size)
	manager, err := emulated.New(emulated.Config{Dir: dir, Capacity: 3 * size})
	f.must(err)
	f.use(manager)
	rec := f.create("large", volume.XFS, size)
	f.stageAt(rec)
	f.publish(rec, f.target("large"), false)
	f.must(os.WriteFile(filepath.Join(f.target("large"), "data"), make([]byte, 64*volume.MiB), 0o644))
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		path := filepath.Join(f.target("large"), "log")
		for {
			select {
			case <-stop:
				longest <- most
				return
			default:
			}
			began := time.Now()
			if err := os.WriteFile(path, []byte("line"), 0o644); err != nil {
				t.Error(err)
			}
			most = max(most, time.Since(began))
		}
	}()
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	close(stop)
	waited := <-longest
	f.must(err)
	t.Logf("a writer waited for %v at most", waited)
	if waited > time.Second {
		t.Errorf("a writer waited for %v", waited)
	}
	f.remove(rec, f.target("large"))
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
}

// reflinks returns a directory of a sparse file system where files can share blocks.
func (f *fixture) reflinks(size int64) string {
	f.t.Helper()
	image, dir := filepath.Join(f.dir, "xfs.img"), filepath.Join(f.dir, "xfs")
	f.must(errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size), os.Mkdir(dir, 0o700)))
	if out, err := exec.Command("mkfs.xfs", "-q", "-m", "reflink=1", image).CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	dev, err := loop.Attach(f.ctx, image)
	f.must(err)
	f.must(mounts.New().Device(f.ctx, dev, dir, volume.XFS, nil))
	f.t.Cleanup(func() {
		if err := errors.Join(mounts.New().Cleanup(dir), loop.Detach(context.Background(), image)); err != nil {
			f.t.Error(err)
		}
	})
	return dir
}

// TestClearGoesOn: zeros over a new raw block volume on persistent memory are written from where an earlier call had
// come to.
func TestClearGoesOn(t *testing.T) {
	const size = 8 * volume.MiB
	f := newFixture(t, "")
	inner := f.configs.Managers[volume.DeviceEmulated]
	f.use(claimsPM{inner})
	rec, err := f.Create(f.ctx, CreateRequest{
		Name: "raw", Block: true, Required: size, Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
	})
	f.must(err)
	if !f.StagesLong(rec.ID) {
		t.Error("staging a raw block volume that has to be cleared is not long")
	}
	dev, err := inner.Attach(f.ctx, rec.ID)
	f.must(err)
	old := make([]byte, size)
	for i := range old {
		old[i] = 'o'
	}
	f.must(os.WriteFile(dev, old, 0))
	rec.Job = &volume.Job{Kind: volume.JobClear, Done: size / 2, Total: size} // what an interrupted call left
	f.must(f.store.Put(rec))
	f.must(f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: f.staging("raw"), Block: true}))
	got, err := os.ReadFile(dev)
	f.must(err)
	if got[size/2-1] != 'o' || got[size/2] != 0 || got[size-1] != 0 {
		t.Errorf("around the middle %q %q, the last is %q", got[size/2-1], got[size/2], got[size-1])
	}
	if now := f.Working(rec.ID); now.Job != nil || !now.Cleared || f.StagesLong(rec.ID) {
		t.Errorf("afterwards the record is %+v", now)
	}
	f.must(errors.Join(f.Unstage(f.ctx, rec.ID, f.staging("raw")), f.Delete(f.ctx, rec.ID)))
}
