// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/emulated"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

func TestMain(m *testing.M) {
	splitfstest.RunIfCalled()
	os.Exit(m.Run())
}

// fixture is a node with real loop devices, file systems and mounts in a directory of its own.
type fixture struct {
	*Node
	t       *testing.T
	ctx     context.Context
	dir     string
	binary  string
	events  *recordedEvents
	configs Config
}

type recordedEvents struct {
	mu   sync.Mutex
	list []string
}

func (r *recordedEvents) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, s)
}

func (r *recordedEvents) OnPVC(_ context.Context, pvc volume.PVC, _ bool, reason, _ string) {
	r.add(fmt.Sprintf("pvc/%s/%s %s", pvc.Namespace, pvc.Name, reason))
}

func (r *recordedEvents) OnPod(_ context.Context, pod volume.Pod, _ bool, reason, _ string) {
	r.add(fmt.Sprintf("pod/%s/%s %s", pod.Namespace, pod.Name, reason))
}

func (r *recordedEvents) OnNode(_ context.Context, node string, _ bool, reason, _ string) {
	r.add(fmt.Sprintf("node/%s %s", node, reason))
}

func (r *recordedEvents) has(want string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.list, want)
}

func (r *recordedEvents) count(want string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.list {
		if e == want {
			n++
		}
	}
	return n
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
}

// newFixture builds a node; what it leaves behind on the machine fails the test.
func newFixture(t *testing.T, binary string) *fixture {
	t.Helper()
	requireRoot(t)
	// t.TempDir() can be too long for a Unix socket's address.
	dir, err := os.MkdirTemp("", "sfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkNoLeaks(t, dir)
		if !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	if binary == "" {
		if binary, err = splitfstest.Install(dir); err != nil {
			t.Fatal(err)
		}
	}
	library := filepath.Join(dir, "image-libsplit.so")
	if err := os.WriteFile(library, []byte("library, version 1"), 0o644); err != nil {
		t.Fatal(err)
	}
	devices, err := emulated.New(emulated.Config{
		Dir: filepath.Join(dir, "emulated"), Capacity: 3 * volume.GiB, MinFree: 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	logger, _ := ktesting.NewTestContext(t)
	f := &fixture{t: t, dir: dir, binary: binary, events: &recordedEvents{}}
	f.ctx = klog.NewContext(context.Background(), logger)
	const pool, logs = 32 * volume.MiB, 16 * volume.MiB
	f.configs = Config{
		Name: "node-1", StateDir: filepath.Join(dir, "volumes"), InjectDir: filepath.Join(dir, "inject"),
		AgentsDir: filepath.Join(dir, "agents"), Library: library,
		CLI: splitfs.CLI{Binary: binary}, Pool: pool, LogReserve: logs, MaxVolumes: 8,
		// tests run beside others, on slow machines
		FreezeLimit: time.Minute, Managers: device.NewManagers(devices), Events: f.events,
		Agent: agent.Config{ReadyTimeout: 30 * time.Second, StopTimeout: 5 * time.Second, MinBackoff: 100 * time.Millisecond,
			MaxBackoff: time.Second},
	}
	f.start()
	return f
}

// start starts the node service, as a new process would.
func (f *fixture) start() {
	f.t.Helper()
	n, err := New(f.ctx, f.configs)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(n.Shutdown)
	f.Node = n
	if err := n.Resume(f.ctx); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) create(name, fsType string, size int64) *volume.Record {
	f.t.Helper()
	rec, err := f.Create(f.ctx, CreateRequest{
		Name: name, FSType: fsType, Required: size,
		Params: volume.Params{
			Mode: contract.Strict, Device: volume.DeviceEmulated, PVC: volume.PVC{Namespace: "default", Name: name},
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return rec
}

// canBeCopied makes a snapshot of a volume, and removes it.
func (f *fixture) canBeCopied(what string, rec *volume.Record) {
	f.t.Helper()
	snapshot, err := f.CreateSnapshot(f.ctx, "snap", rec.ID, nil)
	if err != nil {
		f.t.Errorf("%s: %v", what, err)
		return
	}
	f.must(f.DeleteSnapshot(f.ctx, snapshot.ID))
}

func (f *fixture) staging(name string) string { return filepath.Join(f.dir, "staging-"+name) }

func (f *fixture) target(name string) string { return filepath.Join(f.dir, "target-"+name) }

func (f *fixture) stageAt(rec *volume.Record) string {
	f.t.Helper()
	path := f.staging(rec.Name)
	if err := f.Stage(f.ctx, StageRequest{ID: rec.ID, Path: path, FSType: rec.FSType}); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f *fixture) publish(rec *volume.Record, target string, readOnly bool) {
	f.t.Helper()
	err := f.Publish(f.ctx, PublishRequest{
		ID: rec.ID, StagingPath: f.staging(rec.Name), Target: target, ReadOnly: readOnly,
		Pod: volume.Pod{Namespace: "default", Name: "pod", UID: "1"},
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// remove unpublishes, unstages and deletes a volume.
func (f *fixture) remove(rec *volume.Record, targets ...string) {
	f.t.Helper()
	for _, target := range targets {
		f.must(f.Unpublish(f.ctx, rec.ID, target))
	}
	f.must(f.Unstage(f.ctx, rec.ID, f.staging(rec.Name)))
	f.must(f.Delete(f.ctx, rec.ID))
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 15 s: %s", what)
		}
	}
}

// checkNoLeaks looks for mounts, loop devices and processes that a test left, and removes them.
func checkNoLeaks(t *testing.T, dir string) {
	t.Helper()
	all, err := mountutils.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Backward(all) {
		if strings.HasPrefix(m.MountPoint, dir+"/") {
			t.Errorf("mount left behind: %s", m.MountPoint)
			if err := mountutils.NewWithoutSystemd("").Unmount(m.MountPoint); err != nil {
				t.Error(err)
			}
		}
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // detached while we looked
		}
		if strings.HasPrefix(string(content), dir+"/") {
			t.Errorf("loop device left behind: %s of %s", file, content)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), "\x00"+dir+"/staging-") {
			t.Errorf("process left behind: %q", content)
		}
	}
}
