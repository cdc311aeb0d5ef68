// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// TestFullDataDirectory: on a data directory that is full nothing is begun, the error says what to do, what was
// recorded stays, what is in use is served, also by the next node service, and volumes can be taken down and deleted.
// When there is room all goes on.
func TestFullDataDirectory(t *testing.T) {
	for _, kind := range []string{"tmpfs", volume.Ext4, volume.XFS} {
		t.Run(kind, func(t *testing.T) { fullDataDirectory(t, kind) })
	}
}

func fullDataDirectory(t *testing.T, kind string) {
	f := newFixture(t, "")
	f.Shutdown()
	d := f.onSmallDisk(kind)
	f.start()
	used, staged, idle := f.create("used", volume.XFS, volume.MiB), f.create("staged", volume.Ext4, volume.MiB),
		f.create("idle", volume.XFS, volume.MiB)
	f.must(f.PublishLibrary(f.ctx, f.target("library"), true, volume.Pod{UID: "1"}))
	f.stageAt(used)
	f.publish(used, f.target("used"), false)
	f.stageAt(staged)
	d.fill()
	before := d.records()

	f.nothingBegins(d, used, staged, idle)
	d.unchanged(before, "after calls that failed")
	f.expectHealthy(used)
	f.Shutdown()
	f.start()
	d.unchanged(before, "after a restart")
	for _, rec := range []*volume.Record{used, staged} {
		f.must(f.agents.WaitReady(f.ctx, rec.ID))
		f.expectHealthy(rec)
	}
	f.expectContent(filepath.Join(f.target("library"), libraryName), "library, version 1")

	// What goes gives space back; somebody else takes it at once.
	f.must(f.Unpublish(f.ctx, used.ID, f.target("used")))
	d.fill()
	f.must(f.Unstage(f.ctx, used.ID, f.staging("used")))
	d.fill()
	f.must(f.Delete(f.ctx, idle.ID))
	if _, err := os.Stat(f.image(idle.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device of a deleted volume: %v", err)
	}
	d.fill()
	f.must(f.Delete(f.ctx, used.ID))

	d.empty()
	f.create("new", volume.XFS, volume.MiB)
	f.publish(staged, f.target("staged"), false)
	f.must(os.WriteFile(filepath.Join(f.target("staged"), "file"), []byte("kept"), 0o644))
	d.fill() // the reserve is there again
	f.must(f.Unpublish(f.ctx, staged.ID, f.target("staged")))
	f.must(f.Unpublish(f.ctx, "csi-1", f.target("library")))
	f.remove(staged)
	f.must(f.Delete(f.ctx, volume.IDFromName("new")))
	f.Shutdown()
}

// nothingBegins: calls that would need room fail, and leave nothing behind.
func (f *fixture) nothingBegins(d *smallDisk, used, staged, idle *volume.Record) {
	f.t.Helper()
	request := CreateRequest{Name: "new", FSType: volume.XFS, Required: volume.MiB,
		Params: volume.Params{Mode: contract.Strict, Device: volume.DeviceEmulated}}
	_, errCreate := f.Create(f.ctx, request)
	request.Name, request.Source = "copy", &volume.Source{VolumeID: used.ID}
	_, errCopy := f.Create(f.ctx, request)
	_, errSnapshot := f.CreateSnapshot(f.ctx, "snapshot", used.ID, nil)
	_, errExpand := f.Expand(f.ctx, used.ID, f.staging("used"), 8*volume.MiB, 0)
	for call, err := range map[string]error{
		"create": errCreate, "copy": errCopy, "snapshot": errSnapshot, "expand": errExpand,
		"stage": f.Stage(f.ctx, StageRequest{ID: idle.ID, Path: f.staging("idle"), FSType: idle.FSType}),
		"publish": f.Publish(f.ctx, PublishRequest{ID: staged.ID, StagingPath: f.staging("staged"),
			Target: f.target("staged"), Pod: volume.Pod{Namespace: "default", Name: "pod", UID: "2"}}),
		"library": f.PublishLibrary(f.ctx, f.target("second"), true, volume.Pod{UID: "3"}),
	} {
		if !errors.Is(err, volume.ErrExhausted) || !strings.Contains(err.Error(), d.dir) ||
			!strings.Contains(err.Error(), "Make room") {
			f.t.Errorf("%s: %v", call, err)
		}
	}
	for _, id := range []string{volume.IDFromName("new"), volume.IDFromName("copy")} {
		if _, err := os.Stat(f.image(id)); !errors.Is(err, os.ErrNotExist) {
			f.t.Errorf("a device of a volume that was refused: %v", err)
		}
	}
	for _, dir := range []string{f.staging("idle"), f.target("staged"), f.target("second")} {
		if content, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(content, []byte(dir+" ")) {
			f.t.Errorf("%s is mounted (%v)", dir, err)
		}
	}
}

// smallDisk is a file system of its own for the data directory.
type smallDisk struct {
	t     *testing.T
	dir   string
	state string
}

// onSmallDisk puts the data directory of the node service, which does not run, on a small disk.
func (f *fixture) onSmallDisk(kind string) *smallDisk {
	f.t.Helper()
	d := &smallDisk{t: f.t, dir: filepath.Join(f.dir, "small")}
	d.state = filepath.Join(d.dir, "volumes")
	run := func(name string, args ...string) {
		f.t.Helper()
		if output, err := exec.CommandContext(f.ctx, name, args...).CombinedOutput(); err != nil {
			f.t.Fatalf("%s %v: %v\n%s", name, args, err, output)
		}
	}
	f.must(os.Mkdir(d.dir, 0o755))
	if kind == "tmpfs" {
		run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", d.dir)
	} else {
		image := filepath.Join(f.dir, "small.img")
		size := map[string]string{volume.Ext4: "16M", volume.XFS: "320M"}[kind]
		run("truncate", "--size="+size, image)
		options := map[string][]string{volume.Ext4: {"-m0"}}[kind]
		run("mkfs."+kind, append(append([]string{"-q"}, options...), image)...)
		run("mount", "-o", "loop", image, d.dir)
	}
	// Before newFixture looks for what was left behind.
	f.t.Cleanup(func() {
		f.Shutdown()
		if output, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
			f.t.Errorf("umount: %v\n%s", err, output)
		}
	})
	f.configs.StateDir, f.configs.InjectDir, f.configs.AgentsDir =
		d.state, filepath.Join(d.dir, "inject"), filepath.Join(d.dir, "agents")
	return d
}

// fill takes all space that there is.
func (d *smallDisk) fill() {
	d.t.Helper()
	file, err := os.OpenFile(filepath.Join(d.dir, "filler"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = file.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			d.t.Fatalf("fill the disk: %v", err)
		}
	}
	// Space that is only promised until it is written to the disk is taken too.
	if err := file.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
		d.t.Fatalf("fill the disk: %v", err)
	}
}

func (d *smallDisk) empty() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "filler")); err != nil {
		d.t.Fatal(err)
	}
}

// records are all state files.
func (d *smallDisk) records() map[string]string {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.state, "*.json"))
	if err != nil {
		d.t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(d.state, snapshotsDir, "*.json"))
	if err != nil {
		d.t.Fatal(err)
	}
	records := map[string]string{}
	for _, file := range append(files, more...) {
		content, err := os.ReadFile(file)
		if err != nil {
			d.t.Fatal(err)
		}
		records[file] = string(content)
	}
	return records
}

func (d *smallDisk) unchanged(before map[string]string, when string) {
	d.t.Helper()
	now := d.records()
	if len(now) != len(before) {
		d.t.Errorf("%s there are %d records, before there were %d", when, len(now), len(before))
	}
	for file, content := range before {
		if now[file] != content {
			d.t.Errorf("%s %s is\n%s\nbefore it was\n%s", when, file, now[file], content)
		}
	}
	left, err := filepath.Glob(filepath.Join(d.state, ".*[0-9]"))
	if err != nil || len(left) > 0 {
		d.t.Errorf("%s unfinished files are left: %q (%v)", when, left, err)
	}
}
