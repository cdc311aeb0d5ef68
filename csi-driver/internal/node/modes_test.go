// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// claimsPM is the emulated manager saying that its devices are persistent memory, which the kernel knows better.
type claimsPM struct{ device.Manager }

func (claimsPM) Emulated() bool { return false }

// TestNoDAX: a volume on persistent memory whose files the kernel does not map directly is not staged, and the error
// says what the kernel said.
func TestNoDAX(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t, "")
			rec := f.create("one", fsType, volume.MiB)
			f.Shutdown()
			honest := f.configs.Managers
			f.configs.Managers = device.NewManagers(claimsPM{honest[volume.DeviceEmulated]})
			f.start()
			staging := f.staging("one")
			err := f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging, FSType: fsType})
			if err == nil || !strings.Contains(err.Error(), "DAX") {
				t.Fatalf("staged without DAX: %v", err)
			}
			t.Log(err)
			if mounted, err := mounts.At(staging); err != nil || mounted != nil {
				t.Errorf("still mounted: %+v, %v", mounted, err)
			}
			f.must(f.Delete(f.ctx, rec.ID))
		})
	}
}

// TestRawBlockIsCleared: a raw block volume on persistent memory shows nothing of who had its extents before, keeps
// what is written then, and does not grow.
func TestRawBlockIsCleared(t *testing.T) {
	const size = 8 * volume.MiB
	f := newFixture(t, "")
	rec, err := f.Create(f.ctx, CreateRequest{
		Name: "raw", Block: true, Required: size, Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
	})
	f.must(err)
	emulated := f.configs.Managers[volume.DeviceEmulated]
	dev, err := emulated.Attach(f.ctx, rec.ID)
	f.must(err)
	fill := func(c byte) {
		f.must(os.WriteFile(dev, bytes.Repeat([]byte{c}, int(size)), 0))
	}
	fill('o')
	f.Shutdown()
	f.configs.Managers = device.NewManagers(claimsPM{emulated})
	f.start()
	stage := StageRequest{ID: rec.ID, Path: f.staging("raw"), Block: true}
	f.must(f.Stage(f.ctx, stage))
	got, err := os.ReadFile(dev)
	f.must(err)
	if i := bytes.IndexFunc(got, func(r rune) bool { return r != 0 }); int64(len(got)) != size || i >= 0 {
		t.Errorf("%d bytes, the first that is not zero at %d", len(got), i)
	}
	fill('n')
	f.must(f.Stage(f.ctx, stage))
	if got, err = os.ReadFile(dev); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{'n'}, int(size))) {
		t.Errorf("staged again it does not hold what was written: %v", err)
	}
	f.must(f.Publish(f.ctx, PublishRequest{ID: rec.ID, StagingPath: stage.Path, Target: f.target("raw"), Block: true}))
	if _, err := f.Expand(f.ctx, rec.ID, f.target("raw"), 2*size, 0); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("grown: %v", err)
	}
	f.must(f.Unpublish(f.ctx, rec.ID, f.target("raw")))
	f.must(f.Unstage(f.ctx, rec.ID, stage.Path))
	f.must(f.Delete(f.ctx, rec.ID))
}

// TestMountOptionsReachTheMount: what is safe is passed on, what is not is refused before anything is made.
func TestMountOptionsReachTheMount(t *testing.T) {
	f := newFixture(t, "")
	request := CreateRequest{
		Name: "one", FSType: volume.Ext4, Required: volume.MiB, MountFlags: []string{"data=writeback"},
		Params: volume.Params{Mode: contract.Strict, Device: volume.DeviceEmulated},
	}
	if _, err := f.Create(f.ctx, request); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("data=writeback was accepted: %v", err)
	}
	if left, err := f.store.List(); err != nil || len(left) != 0 {
		t.Errorf("the refused volume left %v, %v", left, err)
	}
	rec := f.create("one", volume.Ext4, volume.MiB)
	stage := StageRequest{ID: rec.ID, Path: f.staging("one"), MountFlags: []string{"nobarrier"}}
	if err := f.Stage(f.ctx, stage); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("nobarrier was accepted: %v", err)
	}
	stage.MountFlags = []string{"noatime,nodev", "commit=7"}
	f.must(f.Stage(f.ctx, stage))
	f.publish(rec, f.target("one"), false)
	mounted, err := mounts.At(f.target("one"))
	f.must(err)
	have := strings.Join(append(mounted.MountOptions, mounted.SuperOptions...), ",") + ","
	for _, want := range []string{"noatime,", "nodev,", "commit=7,"} {
		if !strings.Contains(have, want) {
			t.Errorf("no %s in %s", want, have)
		}
	}
	f.remove(rec, f.target("one"))
}

// TestRawBlock walks a raw block volume through its life: the device is shown, grows in use, keeps its bytes, and is
// read-only for all pods or for none.
func TestRawBlock(t *testing.T) {
	const size = 8 * volume.MiB
	f := newFixture(t, "")
	request := CreateRequest{
		Name: "raw", Block: true, Required: size,
		Params: volume.Params{
			Mode: contract.Strict, Device: volume.DeviceEmulated, PVC: volume.PVC{Namespace: "default", Name: "raw"},
		},
	}
	rec, err := f.Create(f.ctx, request)
	f.must(err)
	if rec.DeviceSize != size || !f.events.has("pvc/default/raw RawBlockVolume") {
		t.Errorf("made %+v; events %v", rec, f.events.list)
	}
	if _, err := f.Create(f.ctx, CreateRequest{
		Name: "raw", FSType: volume.XFS, Required: size, Params: request.Params,
	}); !errors.Is(err, volume.ErrExists) {
		t.Errorf("the same name with a file system: %v", err)
	}
	staging, first, second := f.staging("raw"), f.target("raw-1"), f.target("raw-2")
	if err := f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging}); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("staging it as a file system: %v", err)
	}
	publish := func(target string, readOnly bool) error {
		return f.Publish(f.ctx, PublishRequest{
			ID: rec.ID, StagingPath: staging, Target: target, Block: true, ReadOnly: readOnly,
		})
	}
	for range 2 {
		f.must(f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging, Block: true}))
	}
	for range 2 {
		f.must(publish(first, false))
	}
	write := func(path string) error {
		file, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT|unix.O_SYNC, 0)
		if err != nil {
			return err
		}
		block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		f.must(err)
		copy(block, "hello")
		_, err = file.Write(block)
		return errors.Join(err, file.Close(), unix.Munmap(block))
	}
	f.must(write(first))
	if err := publish(second, true); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("read-only beside a writer: %v", err)
	}
	if usage, err := f.Stats(rec.ID, first); err != nil || usage.Total != size {
		t.Errorf("stats: %+v, %v", usage, err)
	}
	if problems, err := f.Health(rec.ID); err != nil || len(problems) != 0 {
		t.Errorf("health: %+v, %v", problems, err)
	}
	for range 2 {
		if got, err := f.Expand(f.ctx, rec.ID, first, 2*size, 0); err != nil || got != 2*size {
			t.Errorf("expanded to %d, %v", got, err)
		}
	}
	if got := deviceBytes(t, first); got != 2*size {
		t.Errorf("the device has %d bytes after the expansion", got)
	}
	if err := f.Unstage(f.ctx, rec.ID, staging); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("unstaging a published volume: %v", err)
	}
	if err := f.Delete(f.ctx, rec.ID); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("deleting a published volume: %v", err)
	}
	f.must(f.Unpublish(f.ctx, rec.ID, first))
	f.must(publish(second, true))
	if err := write(second); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) &&
		!errors.Is(err, syscall.EROFS) {
		t.Errorf("writing to a read-only device: %v", err)
	}
	f.must(f.Unpublish(f.ctx, rec.ID, second))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.must(f.Unstage(f.ctx, rec.ID, staging))

	// A reboot: nothing is attached any more, the state is there, and so are the bytes.
	f.Shutdown()
	f.start()
	f.must(f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging, Block: true}))
	f.must(publish(first, false))
	f.must(write(first)) // no longer read-only
	content := make([]byte, 5)
	file, err := os.Open(first)
	f.must(err)
	_, err = file.Read(content)
	f.must(errors.Join(err, file.Close()))
	if string(content) != "hello" {
		t.Errorf("read %q", content)
	}
	f.remove(rec, first)
	if entries, err := os.ReadDir(filepath.Join(f.dir, "emulated")); err != nil || len(entries) != 0 {
		t.Errorf("backing files left: %v, %v", entries, err)
	}
}

// TestPublishFails: a pod that did not get a volume does not have it: nothing keeps its traces, nor keeps a raw block
// volume from being copied.
func TestPublishFails(t *testing.T) {
	f := newFixture(t, "")
	f.configs.Promises = policy{"pod": contract.Refuse}
	f.Shutdown()
	f.start()
	blocked := filepath.Join(f.dir, "file") // no target can be made below it
	f.must(os.WriteFile(blocked, nil, 0o600))
	raw, err := f.Create(f.ctx, CreateRequest{
		Name: "raw", Block: true, Required: volume.MiB,
		Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
	})
	f.must(err)
	f.must(f.Stage(f.ctx, StageRequest{ID: raw.ID, Path: f.staging("raw"), Block: true}))
	files := f.create("files", volume.XFS, volume.MiB)
	f.stageAt(files)
	for _, rec := range []*volume.Record{raw, files} {
		if err := f.Publish(f.ctx, PublishRequest{
			ID: rec.ID, StagingPath: f.staging(rec.Name), Target: filepath.Join(blocked, "mount"), Block: rec.Block,
			Pod: volume.Pod{Namespace: "default", Name: "pod", UID: "1"},
		}); err == nil {
			t.Fatal("it was published")
		}
		if now, err := f.Volume(rec.ID); err != nil || len(now.Published) != 0 {
			t.Errorf("%s is published at %v, %v", rec.Name, now.Published, err)
		}
	}
	if text, err := os.ReadFile(f.policiesFile(files)); err == nil {
		t.Errorf("the agent is told of a pod that has not the volume: %q", text)
	}
	f.canBeCopied("a copy of a raw block volume that nobody has", raw)
	f.remove(files)
	f.remove(raw)
}

// TestRawBlockIsGone: a raw block volume whose device is lost can be taken down.
func TestRawBlockIsGone(t *testing.T) {
	f := newFixture(t, "")
	rec, err := f.Create(f.ctx, CreateRequest{
		Name: "raw", Block: true, Required: volume.MiB,
		Params: volume.Params{Mode: contract.Posix, Device: volume.DeviceEmulated},
	})
	f.must(err)
	f.must(f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: f.staging("raw"), Block: true}))
	f.must(f.configs.Managers[volume.DeviceEmulated].Detach(f.ctx, rec.ID)) // as after a reboot
	f.must(os.Remove(f.image(rec.ID)))
	for range 2 {
		f.must(f.Unstage(f.ctx, rec.ID, f.staging("raw")))
	}
	f.must(f.Delete(f.ctx, rec.ID))
}

func deviceBytes(t *testing.T, path string) int64 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size, err := file.Seek(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestManyReaders: several pods read a volume that none of them can write to, and one claim for a single pod stays with
// it.
func TestManyReaders(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("writer"), false)
	f.must(os.WriteFile(filepath.Join(f.target("writer"), "file"), []byte("x"), 0o644))
	for _, target := range []string{"a", "b"} {
		f.publish(rec, f.target(target), true)
		if _, err := os.ReadFile(filepath.Join(f.target(target), "file")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(f.target(target), "y"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
			t.Errorf("a reader wrote: %v", err)
		}
	}
	err := f.Publish(f.ctx, PublishRequest{
		ID: rec.ID, StagingPath: f.staging("one"), Target: f.target("only"), Exclusive: true,
	})
	if !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("ReadWriteOncePod beside others: %v", err)
	}
	f.remove(rec, f.target("writer"), f.target("a"), f.target("b"))
}
