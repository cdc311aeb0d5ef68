// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestRealModule loads the real module and takes a volume through its life on it, growing included. It needs a kernel
// that has one: csi-driver/test/vm-module runs it in a virtual machine.
func TestRealModule(t *testing.T) {
	dir := os.Getenv("SPLITFS_TEST_MODULES")
	if dir == "" {
		t.Skip("SPLITFS_TEST_MODULES names no directory of modules; csi-driver/test/vm-module runs this in a virtual machine")
	}
	f := newFixture(t, "")
	kernel, err := module.Running()
	f.must(err)
	var changes []string
	modules, err := module.NewManager(module.Config{
		Enabled: true, Dirs: []string{dir}, StateDir: filepath.Join(f.dir, "module"), Kernel: kernel,
		OnChange: func(_ context.Context, _, now module.Status) { changes = append(changes, string(now.State)) },
	})
	f.must(err)
	// What was staged before the module is ready stays on the kernel's own ext4.
	f.config.Module = modules
	early := f.create("early", volume.Ext4, volume.MiB)
	f.stageAt(early)
	if s := modules.Ensure(f.ctx); s.State != module.Ready {
		t.Fatalf("status %+v", s)
	}
	modules.Ensure(f.ctx)
	if len(changes) != 1 || changes[0] != string(module.Ready) {
		t.Errorf("told %v", changes)
	}
	rec := f.create("one", volume.Ext4, 64*volume.MiB)
	staging, target := f.stageAt(rec), f.target("one")
	f.stageAt(early)
	for path, want := range map[string]string{staging: module.FileSystemType, f.staging("early"): volume.Ext4} {
		if mounted, err := mounts.At(path); err != nil || mounted == nil || mounted.FsType != want {
			t.Errorf("mounted at %s: %+v, %v; wanted %s", path, mounted, err, want)
		}
	}
	f.must(module.Ask(staging))
	if err := module.Ask(f.staging("early")); err == nil {
		t.Error("the kernel's own ext4 has relink")
	}
	for id, want := range map[string]int{rec.ID: 0, early.ID: 1} {
		if problems, err := f.Health(id); err != nil || len(problems) != want {
			t.Errorf("health of %s: %+v, %v", id, problems, err)
		}
	}
	f.publish(rec, target, false)
	f.must(os.WriteFile(filepath.Join(target, "file"), []byte("hello"), 0o644))
	size, err := f.Expand(f.ctx, rec.ID, target, 256*volume.MiB, 0)
	f.must(err)
	usage, err := filesystem.Measure(target)
	f.must(err)
	if size != 256*volume.MiB || usage.Available < size {
		t.Errorf("expanded to %d, %d bytes are available", size, usage.Available)
	}
	if s := modules.Ensure(f.ctx); s.Users != 1 {
		t.Errorf("users with one volume: %+v", s)
	}
	if err := module.Unload(kernel); err == nil {
		t.Error("a module in use was unloaded")
	}
	// A restarted service finds the module loaded and the volume as it was.
	f.Shutdown()
	f.configs.Module = modules
	f.start()
	f.stageAt(rec)
	f.must(f.Unpublish(f.ctx, rec.ID, target))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.stageAt(rec)
	f.publish(rec, target, false)
	if content, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(content) != "hello" {
		t.Errorf("read %q, %v", content, err)
	}
	// The same volume serves without the module: what is on the device is ext4.
	f.must(f.Unpublish(f.ctx, rec.ID, target))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.config.Module = noModule{}
	f.stageAt(rec)
	if mounted, err := mounts.At(staging); err != nil || mounted == nil || mounted.FsType != volume.Ext4 {
		t.Errorf("without the module mounted: %+v, %v", mounted, err)
	}
	if content, err := os.ReadFile(filepath.Join(staging, "data", "file")); err != nil || string(content) != "hello" {
		t.Errorf("read %q, %v with the kernel's own ext4", content, err)
	}
	f.remove(rec)
	f.remove(early)
	if s := modules.Ensure(f.ctx); s.Users != 0 {
		t.Errorf("users in the end: %+v", s)
	}
}
