// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestLifecycle walks a volume through its life on real loop devices, for both file systems, every call twice.
func TestLifecycle(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		t.Run(fsType, func(t *testing.T) { lifecycle(t, newFixture(t, ""), fsType) })
	}
}

func lifecycle(t *testing.T, f *fixture, fsType string) {
	const size = 256 * volume.MiB
	rec := f.create("one", fsType, size)
	if again := f.create("one", fsType, size); again.ID != rec.ID {
		t.Fatalf("a second create made %s beside %s", again.ID, rec.ID)
	}
	staging, target, readOnly := f.stageAt(rec), f.target("rw"), f.target("ro")
	f.stageAt(rec)

	// What was promised is there, on top of the overhead (nothing of which is used by the test double).
	usage, err := filesystem.Measure(staging)
	f.must(err)
	if want := size + rec.Overhead; usage.Available < want {
		t.Errorf("%d bytes are available, promised are %d and overhead", usage.Available, want)
	}

	f.publish(rec, target, false)
	f.publish(rec, target, false)
	f.publish(rec, readOnly, true)
	f.must(os.WriteFile(filepath.Join(target, "file"), []byte("hello"), 0o644))
	if content, err := os.ReadFile(filepath.Join(readOnly, "file")); err != nil || string(content) != "hello" {
		t.Errorf("read %q, %v through the read-only mount", content, err)
	}
	if err := os.WriteFile(filepath.Join(readOnly, "other"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing through the read-only mount: %v, wanted EROFS", err)
	}
	if _, err := os.Lstat(filepath.Join(target, "..", ".splitfs")); err == nil {
		t.Error("the control directory can be reached from the published directory")
	}
	if !f.events.has("pvc/default/one EmulatedVolume") || !f.events.has("pod/default/pod EmulatedVolume") {
		t.Errorf("no event says that the volume is emulated: %v", f.events.list)
	}

	if err := f.Delete(f.ctx, rec.ID); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("deleting a volume in use: %v", err)
	}
	if err := f.Unstage(f.ctx, rec.ID, staging); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("unstaging a published volume: %v", err)
	}

	testExpand(t, f, rec, target, 2*size)

	for range 2 {
		f.must(f.Unpublish(f.ctx, rec.ID, target))
		f.must(f.Unpublish(f.ctx, rec.ID, readOnly))
	}
	for range 2 {
		f.must(f.Unstage(f.ctx, rec.ID, staging))
	}

	// The data is still there when the volume is used again: formatted once.
	f.stageAt(rec)
	f.publish(rec, target, false)
	if content, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(content) != "hello" {
		t.Errorf("read %q, %v after staging again", content, err)
	}
	f.remove(rec, target)
	f.must(f.Delete(f.ctx, rec.ID))
	if entries, err := os.ReadDir(filepath.Join(f.dir, "emulated")); err != nil || len(entries) != 0 {
		t.Errorf("backing files left: %v, %v", entries, err)
	}
}

func testExpand(t *testing.T, f *fixture, rec *volume.Record, target string, size int64) {
	t.Helper()
	expanded, err := f.Expand(f.ctx, rec.ID, target, size, 0)
	if rec.FSType == volume.Ext4 && !hasSysResource(t) {
		if err == nil || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
			t.Errorf("expanding ext4 without CAP_SYS_RESOURCE: %v", err)
		}
		return
	}
	f.must(err)
	if expanded != size {
		t.Errorf("expanded to %d, wanted %d", expanded, size)
	}
	usage, err := filesystem.Measure(target)
	f.must(err)
	if usage.Available < size+rec.Overhead-volume.MiB { // one small file is stored
		t.Errorf("%d bytes are available after the expansion to %d", usage.Available, size)
	}
	if again, err := f.Expand(f.ctx, rec.ID, target, size, 0); err != nil || again != size {
		t.Errorf("a second expansion: %d, %v", again, err)
	}
}

// hasSysResource says whether this process may grow an ext4 file system in use; some containers and virtual machines
// may not.
func hasSysResource(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// TestAgentDies kills the agent: it comes back, the volume stays mounted, and its users are told.
func TestAgentDies(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	before, _ := f.agents.State(rec.ID)
	f.must(syscall.Kill(before.PID, syscall.SIGKILL))
	eventually(t, "the agent is back", func() bool {
		now, _ := f.agents.State(rec.ID)
		return now.Ready && now.Restarts == 1 && now.PID != before.PID
	})
	for _, want := range []string{"pvc/default/one AgentDied", "pod/default/pod AgentDied"} {
		if !f.events.has(want) {
			t.Errorf("no event %q in %v", want, f.events.list)
		}
	}
	f.remove(rec, f.target("one"))
}

// TestAgentCannotStart: publishing and health say why, and staging succeeds once the cause is gone.
func TestAgentCannotStart(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging := f.stageAt(rec)
	f.must(splitfstest.FailAgent(staging, true))
	state, _ := f.agents.State(rec.ID)
	f.must(syscall.Kill(state.PID, syscall.SIGKILL))
	eventually(t, "the agent fails for its own reason", func() bool {
		now, _ := f.agents.State(rec.ID)
		return now.LastError != nil && strings.Contains(now.LastError.Error(), "told to fail")
	})
	ctx, cancel := context.WithTimeout(f.ctx, 0)
	err := f.Publish(ctx, PublishRequest{ID: rec.ID, StagingPath: staging, Target: f.target("one")})
	cancel()
	if !errors.Is(err, volume.ErrUnavailable) || !strings.Contains(err.Error(), "told to fail") {
		t.Errorf("publishing without an agent: %v", err)
	}
	problems, err := f.Health(rec.ID)
	f.must(err)
	if len(problems) != 1 || problems[0].Severity != Degraded {
		t.Errorf("health without an agent: %+v", problems)
	}
	f.must(splitfstest.FailAgent(staging, false))
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	f.remove(rec, f.target("one"))
}

// TestRestartOfTheService: a new service takes over the volumes of the one before, and finishes a deletion it began.
func TestRestartOfTheService(t *testing.T) {
	f := newFixture(t, "")
	rec, doomed := f.create("one", volume.XFS, volume.MiB), f.create("doomed", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	doomed.Phase = volume.PhaseDeleting
	f.must(f.store.Put(doomed))
	f.Shutdown()
	if state, _ := f.agents.State(rec.ID); state.Ready {
		t.Error("an agent outlives the service")
	}
	stale := filepath.Join(f.library.agentsDir(), "7-9999.sock")
	f.must(os.WriteFile(stale, nil, 0o600))
	f.start()
	eventually(t, "the agent of the staged volume runs", func() bool {
		state, ok := f.agents.State(rec.ID)
		return ok && state.Ready
	})
	if _, err := os.Lstat(stale); err == nil {
		t.Error("a stale socket was left")
	}
	if _, err := f.store.Get(doomed.ID); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("the interrupted deletion was not finished: %v", err)
	}
	f.publish(rec, f.target("one"), false) // kubelet repeats itself after restarts
	f.remove(rec, f.target("one"))
}

// TestStageFails: whatever fails inside NodeStage, nothing stays mounted or attached, and the device is not formatted
// again.
func TestStageFails(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging := f.stageAt(rec)
	f.must(splitfstest.WriteForeignFormat(staging))
	f.must(f.Unstage(f.ctx, rec.ID, staging))

	err := f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging})
	if err == nil || !strings.Contains(err.Error(), "a format this version does not know") {
		t.Fatalf("staging a volume of the future: %v", err)
	}
	if mounted, err := mounts.At(staging); err != nil || mounted != nil {
		t.Errorf("still mounted: %+v, %v", mounted, err)
	}

	// A wiped device is an accident, not an empty volume.
	image := filepath.Join(f.dir, "emulated", rec.ID+".img")
	file, err := os.OpenFile(image, os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteAt(make([]byte, volume.MiB), 0)
	f.must(errors.Join(err, file.Close()))
	err = f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: staging})
	if !errors.Is(err, volume.ErrPrecondition) || !strings.Contains(err.Error(), "not formatted again") {
		t.Errorf("staging a wiped device: %v", err)
	}
	f.must(f.Delete(f.ctx, rec.ID))
}

// TestQuarantine: what recovery set aside is told on the claim, on the pod, and as the volume's health.
func TestQuarantine(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging := f.stageAt(rec)
	f.must(splitfstest.Quarantine(staging, 3))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	for _, want := range []string{"pvc/default/one RecoveryQuarantined", "pod/default/pod RecoveryQuarantined"} {
		if !f.events.has(want) {
			t.Errorf("no event %q in %v", want, f.events.list)
		}
	}
	problems, err := f.Health(rec.ID)
	f.must(err)
	if len(problems) != 1 || problems[0].Severity != DataLoss {
		t.Errorf("health: %+v", problems)
	}
	f.remove(rec, f.target("one"))
}

// TestCapacity: a node promises what it has and no more, and says what would have fitted.
func TestCapacity(t *testing.T) {
	f := newFixture(t, "")
	params := volume.Params{Device: volume.DeviceEmulated}
	offered, err := f.Capacity(f.ctx, params, false)
	f.must(err)
	capacity := offered.Largest
	_, err = f.Create(f.ctx, CreateRequest{
		Name: "large", FSType: volume.XFS, Required: capacity + volume.MiB, Params: params,
	})
	if !errors.Is(err, volume.ErrExhausted) ||
		!strings.Contains(err.Error(), fmt.Sprintf("holds %d MiB", capacity/volume.MiB)) {
		t.Errorf("a volume larger than the node: %v", err)
	}
	if left, err := f.store.List(); err != nil || len(left) != 0 {
		t.Errorf("the refused volume left %v, %v", left, err)
	}
	rec := f.create("all", volume.XFS, capacity)
	f.stageAt(rec)
	if left, err := f.Capacity(f.ctx, params, false); err != nil || left.Largest != 0 {
		t.Errorf("%d left, %v", left.Largest, err)
	}
	_, err = f.Expand(f.ctx, rec.ID, f.staging("all"), 2*capacity, 0)
	if !errors.Is(err, volume.ErrOutOfRange) {
		t.Errorf("expanding beyond the node: %v", err)
	}
	f.remove(rec)
	if back, err := f.Capacity(f.ctx, params, false); err != nil || back.Largest != capacity {
		t.Errorf("%d of %d came back, %v", back.Largest, capacity, err)
	}
}

// hopeful says that there is room until it is taken, as a node does whose room others take meanwhile.
type hopeful struct{ device.Manager }

func (hopeful) Available(context.Context) (int64, error) { return 1 << 40, nil }

// TestExpandFails: a volume that could not grow is as large as before, also for who copies it.
func TestExpandFails(t *testing.T) {
	f := newFixture(t, "")
	f.config.Managers = device.NewManagers(hopeful{f.configs.Managers[volume.DeviceEmulated]})
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	before, err := f.Volume(rec.ID)
	f.must(err)
	for range 2 {
		if _, err := f.Expand(f.ctx, rec.ID, f.staging("one"), 10*volume.GiB, 0); !errors.Is(err, volume.ErrExhausted) {
			t.Errorf("expanding beyond the node: %v", err)
		}
	}
	if now, err := f.Volume(rec.ID); err != nil || now.DeviceSize != before.DeviceSize || now.Size != before.Size {
		t.Errorf("now %+v, before %+v, %v", now, before, err)
	}
	f.canBeCopied("a snapshot of it", rec)
	f.remove(rec)
}

// narrow is a manager whose devices have less room to grow than new ones have.
type narrow struct{ device.Manager }

func (narrow) Growable(context.Context, string) (int64, error) { return 10 * volume.MiB, nil }

// TestExpandWhereItIs: a volume that cannot move is promised no more than there is where it is.
func TestExpandWhereItIs(t *testing.T) {
	f := newFixture(t, "")
	f.use(narrow{f.configs.Managers[volume.DeviceEmulated]})
	rec := f.create("one", volume.XFS, 512*volume.MiB)
	const much = 256 * volume.MiB
	if _, err := f.CheckExpand(f.ctx, rec.ID, rec.Size+much, 0); !errors.Is(err, volume.ErrOutOfRange) {
		t.Errorf("%d MiB more where there are 10: %v", much/volume.MiB, err)
	}
	if size, err := f.CheckExpand(f.ctx, rec.ID, rec.Size+volume.MiB, 0); err != nil || size != rec.Size+volume.MiB {
		t.Errorf("a MiB more: %d, %v", size, err)
	}
	f.must(f.Delete(f.ctx, rec.ID))
}

// TestPodsSeeTheirOwn: a pod finds the agents of the volumes that it has, from its first to its last moment with them,
// and none besides; so it is after a restart of the service and an upgrade of the library. A pod of a driver that
// showed all sockets to all keeps its own.
func TestPodsSeeTheirOwn(t *testing.T) {
	f := newFixture(t, "")
	one, two := f.create("one", volume.XFS, volume.MiB), f.create("two", volume.XFS, volume.MiB)
	f.stageAt(one)
	f.stageAt(two)
	library := func(uid string) string { return f.target("library-" + uid) }
	publish := func(rec *volume.Record, uid string) {
		t.Helper()
		f.must(f.Publish(f.ctx, PublishRequest{
			ID: rec.ID, StagingPath: f.staging(rec.Name), Target: f.target(rec.Name + uid),
			Pod: volume.Pod{Namespace: "default", Name: "pod-" + uid, UID: uid},
		}))
	}
	check := func(uid string, want ...*volume.Record) {
		t.Helper()
		var names []string
		for _, rec := range want {
			mounted, err := mounts.At(f.staging(rec.Name))
			f.must(err)
			names = append(names, fmt.Sprintf("%d-%d.sock", mounted.Major, mounted.Minor))
		}
		slices.Sort(names)
		entries, err := os.ReadDir(filepath.Join(library(uid), "agents"))
		f.must(err)
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if !slices.Equal(got, names) {
			t.Errorf("pod %s sees %q, has %q", uid, got, names)
		}
	}
	publish(one, "a") // before the library
	for _, uid := range []string{"a", "b"} {
		f.must(f.PublishLibrary(f.ctx, library(uid), true, volume.Pod{UID: uid}))
	}
	check("a", one)
	check("b")
	publish(two, "b")
	publish(one, "b")
	check("a", one)
	check("b", one, two)
	f.must(f.Unpublish(f.ctx, one.ID, f.target("oneb")))
	check("b", two)

	f.must(os.WriteFile(f.library.source, []byte("library, version 2"), 0o644))
	f.Shutdown()
	f.start()
	for _, rec := range []*volume.Record{one, two} {
		f.must(f.agents.WaitReady(f.ctx, rec.ID))
	}
	check("a", one)
	check("b", two)
	if content, err := os.ReadFile(filepath.Join(library("a"), "libsplit.so")); err != nil ||
		string(content) != "library, version 2" {
		t.Errorf("after an upgrade the pod sees %q, %v", content, err)
	}
	if err := f.PublishLibrary(f.ctx, library("c"), true, volume.Pod{
		UID: "../a",
	}); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("a path for a UID: %v", err)
	}
	if err := f.PublishLibrary(f.ctx, library("c"), true, volume.Pod{}); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("a library for nobody: %v", err)
	}

	// A pod that was started before there were directories of pods.
	f.Shutdown()
	f.must(errors.Join(f.mounter.Cleanup(library("a")), os.RemoveAll(f.library.podDir("a"))))
	f.must(f.mounter.Bind(f.ctx, f.library.dir, library("a"), []string{"ro"}))
	f.start()
	f.must(f.agents.WaitReady(f.ctx, one.ID))
	check("a", one)
	f.must(errors.Join(f.Unpublish(f.ctx, "csi-1", library("a")), f.Unpublish(f.ctx, "csi-2", library("b"))))
	f.remove(one, f.target("onea"))
	f.remove(two, f.target("twob"))
	f.must(f.library.removePods(map[string]bool{}, 0))
	if dirs, err := f.library.podDirs(); err != nil || len(dirs) != 0 {
		t.Errorf("left of pods that are gone: %q, %v", dirs, err)
	}
}

// TestLibrary: pods see library and sockets read-only; a missing library is told and healed.
func TestLibrary(t *testing.T) {
	f := newFixture(t, "")
	target := f.target("library")
	if err := f.PublishLibrary(f.ctx, target, false, volume.Pod{UID: "1"}); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("a writable library: %v", err)
	}
	f.must(f.PublishLibrary(f.ctx, target, true, volume.Pod{UID: "1"}))
	f.must(f.PublishLibrary(f.ctx, target, true, volume.Pod{UID: "1"}))
	if content, err := os.ReadFile(filepath.Join(target, "libsplit.so")); err != nil ||
		string(content) != "library, version 1" {
		t.Errorf("the pod sees %q, %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(target, "x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing into the library volume: %v, wanted EROFS", err)
	}
	if _, err := f.Stats("csi-0123", target); err != nil {
		t.Errorf("stats of the library volume: %v", err)
	}
	f.must(os.WriteFile(f.library.source, []byte("library, version 2"), 0o644))
	f.start() // an upgrade: pods that are there see the new file
	if content, err := os.ReadFile(filepath.Join(target, "libsplit.so")); err != nil ||
		string(content) != "library, version 2" {
		t.Errorf("after an upgrade the pod sees %q, %v", content, err)
	}
	f.must(f.Unpublish(f.ctx, "csi-0123", target))
	f.must(f.Unpublish(f.ctx, "csi-0123", target))

	f.must(os.Remove(f.library.path()))
	f.must(os.Rename(f.library.source, f.library.source+".away"))
	err := f.PublishLibrary(f.ctx, target, true, volume.Pod{UID: "1"})
	if !errors.Is(err, volume.ErrPrecondition) || !strings.Contains(err.Error(), "cannot offer libsplit.so") {
		t.Errorf("publishing a missing library: %v", err)
	}
	f.must(os.Rename(f.library.source+".away", f.library.source))
	if f.events.has("node/node-1 LibraryRestored") {
		t.Error("told that the library was put back before it was")
	}
	f.must(f.PublishLibrary(f.ctx, target, true, volume.Pod{UID: "1"}))
	if n := f.events.count("node/node-1 LibraryRestored"); n != 1 {
		t.Errorf("told %d times that the library was put back", n)
	}
	f.must(f.Unpublish(f.ctx, "csi-0123", target))
}
