// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/killtest"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
)

// everyStep makes TestKilled kill at every step, for each file system; without it a sample is taken that fits a unit
// test.
const everyStep = "SPLITFS_KILL_EVERY_STEP"

// TestKilled kills `splitfs-csi node`, a real process, with all its children, just before each call by which a volume's
// life changes the machine: from CreateVolume to DeleteVolume. A new process then gets the interrupted call again, as
// kubelet and the sidecars repeat it, or is asked at once to undo everything. What is deleted is erased too, but for
// ext4. Either way the volume's life ends as it would have, its data is there as long as it should be, and nothing is
// left: no mount, loop device, process, backing file or state.
func TestKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	const sample = 6
	total := map[string]int{}
	for _, fsType := range []string{"xfs", "ext4", ""} {
		l := &life{fsType: fsType}
		total[fsType] = l.run(t, 0, false)
		t.Logf("%s: %d steps", l.kind(), total[fsType])
		if total[fsType] < 20 {
			t.Errorf("%s: only %d steps were seen; the filter is broken", l.kind(), total[fsType])
		}
	}
	for fsType, steps := range total {
		stride := max(1, steps/sample)
		if os.Getenv(everyStep) != "" {
			stride = 1
		} else if fsType == "ext4" {
			continue // it differs in the programs that are run
		}
		// Steps move a little between runs (temporary names, restarts of agents), so the end is not exact.
		for at := 1; at <= steps; at += stride {
			for _, abandon := range []bool{false, true} {
				if stride > 1 && abandon != (at/stride%2 == 0) {
					continue
				}
				l := &life{fsType: fsType}
				t.Run(fmt.Sprintf("%s/%d/abandon=%t", l.kind(), at, abandon), func(t *testing.T) { l.run(t, at, abandon) })
			}
		}
	}
}

// life is a volume's life on a node of its own.
type life struct {
	fsType string
	dir    string
	log    *os.File

	process *killtest.Process
	conn    *grpc.ClientConn

	id, staging, target string
	snapshot, clone     string
	group               string
	members             []string
	context             map[string]string
	published           bool
}

func (l *life) kind() string {
	if l.fsType == "" {
		return "block"
	}
	return l.fsType
}

func (l *life) capability() *csi.VolumeCapability {
	if l.fsType != "" {
		return mountCapability(l.fsType)
	}
	c := mountCapability("")
	c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	return c
}

func (l *life) parameters() map[string]string {
	if l.fsType == "ext4" {
		return map[string]string{"mode": "strict"}
	}
	return map[string]string{"mode": "strict", "erase": "overwrite"}
}

func (l *life) endpoint() string { return "unix://" + filepath.Join(l.dir, "csi.sock") }

// start starts the driver, to be killed at a step of its own life, 0: at none.
func (l *life) start(t *testing.T, killAt int) {
	t.Helper()
	process, err := killtest.Start(l.dir, killAt, l.log, filepath.Join(l.dir, driverName),
		filepath.Join(l.dir, driverName), "node", "--node-name=node-1",
		"--kubelet-dir="+filepath.Join(l.dir, "kubelet"), "--csi-endpoint="+l.endpoint(), "--register=false",
		"--data-dir="+filepath.Join(l.dir, "data"),
		"--emulated-capacity=2Gi", "--emulated-min-free=0", "--pool-bytes=16Mi", "--log-reserve=16Mi",
		"--splitfs-binary="+filepath.Join(l.dir, "splitfs"), "--library="+filepath.Join(l.dir, "libsplit.so"),
		"--http-endpoint=", "--events=false", "--status=false", "--require-library=false", "--watch-interval=1h",
		"--freeze-limit=10m") // on a slow machine looking for changes takes long, and is not what this is about
	if err != nil {
		t.Fatal(err)
	}
	l.process = process
}

// connect waits until the driver serves; false when it was killed before.
func (l *life) connect(t *testing.T) bool {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(l.dir, "csi.sock")); err == nil {
			break
		}
		if l.process.Killed() != "" {
			return false
		}
		if time.Now().After(deadline) {
			t.Fatalf("the driver does not serve; its log: %s", l.log.Name())
		}
	}
	conn, err := connection.Connect(context.Background(), l.endpoint(), nil, connection.WithTimeout(30*time.Second),
		connection.OnConnectionLoss(func(context.Context) bool { return false }))
	if l.process.Killed() != "" {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	l.conn = conn
	return true
}

// end waits for the driver to be gone and forgets it.
func (l *life) end(t *testing.T) {
	t.Helper()
	if l.conn != nil {
		if err := l.conn.Close(); err != nil {
			t.Error(err)
		}
		l.conn = nil
	}
	if err := l.process.Stop(context.Background()); err != nil {
		t.Errorf("the driver: %v; its log: %s", err, l.log.Name())
	}
	if err := os.Remove(filepath.Join(l.dir, "csi.sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

type lifeStep struct {
	name string
	call func(ctx context.Context, t *testing.T) error
	// undo: part of taking the volume down, done also when its life is given up.
	undo bool
	// makes: gives something an ID. The sidecars repeat such a call until they have it, also to delete what it made.
	makes bool
}

func (l *life) steps() []lifeStep {
	controller := func() csi.ControllerClient { return csi.NewControllerClient(l.conn) }
	node := func() csi.NodeClient { return csi.NewNodeClient(l.conn) }
	const size, larger = 16 << 20, 32 << 20
	return []lifeStep{
		{name: "create", makes: true, call: func(ctx context.Context, _ *testing.T) error {
			resp, err := controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: size},
				VolumeCapabilities: []*csi.VolumeCapability{l.capability()}, Parameters: l.parameters(),
			})
			if err == nil {
				l.id, l.context = resp.GetVolume().GetVolumeId(), resp.GetVolume().GetVolumeContext()
			}
			return err
		}},
		{name: "stage", call: func(ctx context.Context, _ *testing.T) error {
			_, err := node().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
				VolumeId: l.id, StagingTargetPath: l.staging, VolumeCapability: l.capability(), VolumeContext: l.context,
			})
			return err
		}},
		{name: "publish", call: func(ctx context.Context, t *testing.T) error {
			_, err := node().NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
				VolumeId: l.id, StagingTargetPath: l.staging, TargetPath: l.target, VolumeCapability: l.capability(),
				VolumeContext: l.context,
			})
			if err == nil {
				l.write(t)
				l.published = true
			}
			return err
		}},
		{name: "expand", call: func(ctx context.Context, t *testing.T) error {
			if l.fsType == "ext4" {
				return nil // in use it grows only with CAP_SYS_RESOURCE
			}
			resp, err := node().NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
				VolumeId: l.id, VolumePath: l.target, StagingTargetPath: l.staging, VolumeCapability: l.capability(),
				CapacityRange: &csi.CapacityRange{RequiredBytes: larger},
			})
			if err == nil && resp.GetCapacityBytes() != larger {
				t.Errorf("expanded to %d", resp.GetCapacityBytes())
			}
			return err
		}},
		{name: "snapshot", makes: true, call: func(ctx context.Context, t *testing.T) error {
			if l.fsType == "" {
				return nil // in use it cannot be copied
			}
			resp, err := controller().CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: l.id})
			if err == nil {
				l.snapshot = resp.GetSnapshot().GetSnapshotId()
			}
			return err
		}},
		{name: "clone", makes: true, call: func(ctx context.Context, t *testing.T) error {
			if l.fsType == "" {
				return nil
			}
			resp, err := controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: "pvc-2", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * larger},
				VolumeCapabilities: []*csi.VolumeCapability{l.capability()},
				Parameters:         l.parameters(),
				VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
					Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: l.snapshot},
				}},
			})
			if err == nil {
				l.clone = resp.GetVolume().GetVolumeId()
			}
			return err
		}},
		{name: "group", makes: true, call: func(ctx context.Context, t *testing.T) error {
			if l.clone == "" {
				return nil
			}
			resp, err := csi.NewGroupControllerClient(l.conn).CreateVolumeGroupSnapshot(ctx,
				&csi.CreateVolumeGroupSnapshotRequest{Name: "group-1", SourceVolumeIds: []string{l.id, l.clone}})
			if err != nil {
				return err
			}
			l.group, l.members = resp.GetGroupSnapshot().GetGroupSnapshotId(), nil
			for _, snapshot := range resp.GetGroupSnapshot().GetSnapshots() {
				l.members = append(l.members, snapshot.GetSnapshotId())
			}
			if len(l.members) != 2 {
				t.Errorf("a group of two has the snapshots %q", l.members)
			}
			return nil
		}},
		{name: "delete group", undo: true, call: func(ctx context.Context, t *testing.T) error {
			if l.group == "" {
				return nil
			}
			_, err := csi.NewGroupControllerClient(l.conn).DeleteVolumeGroupSnapshot(ctx,
				&csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: l.group, SnapshotIds: l.members})
			return err
		}},
		{name: "delete clone and snapshot", undo: true, call: func(ctx context.Context, t *testing.T) error {
			if l.clone != "" {
				if _, err := controller().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: l.clone}); err != nil {
					return err
				}
			}
			if l.snapshot == "" {
				return nil
			}
			_, err := controller().DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: l.snapshot})
			return err
		}},
		{name: "unpublish", undo: true, call: func(ctx context.Context, t *testing.T) error {
			l.read(t)
			_, err := node().NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: l.id, TargetPath: l.target})
			return err
		}},
		{name: "unstage", undo: true, call: func(ctx context.Context, _ *testing.T) error {
			_, err := node().NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: l.id, StagingTargetPath: l.staging})
			return err
		}},
		{name: "delete", undo: true, call: func(ctx context.Context, _ *testing.T) error {
			_, err := controller().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: l.id})
			return err
		}},
		{name: "erase", undo: true, call: func(ctx context.Context, _ *testing.T) error {
			for l.process.Killed() == "" {
				devices, err := filepath.Glob(filepath.Join(l.dir, "data", "emulated", "*"))
				states, stateErr := filepath.Glob(filepath.Join(l.dir, "data", "volumes", "*.json"))
				left := slices.Concat(devices, states)
				if err = errors.Join(err, stateErr); err != nil || len(left) == 0 {
					return err
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("not erased: %v", left)
				case <-time.After(5 * time.Millisecond):
				}
			}
			return nil
		}},
	}
}

// write stores something in the published volume, durably.
func (l *life) write(t *testing.T) {
	t.Helper()
	if l.fsType == "" {
		return // TestRawBlock looks at bytes
	}
	file, err := os.Create(filepath.Join(l.target, "file"))
	if err == nil {
		_, err = file.WriteString("what the user stored")
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// read checks that what was stored is there, as long as the volume is published.
func (l *life) read(t *testing.T) {
	t.Helper()
	if !l.published || l.fsType == "" {
		return
	}
	l.published = false // what follows unpublishes it, once or twice
	if content, err := os.ReadFile(filepath.Join(l.target, "file")); err != nil ||
		string(content) != "what the user stored" {
		t.Errorf("read %q, %v", content, err)
	}
}

// run lives a volume's life, killed once at a step, and returns how many steps there were.
func (l *life) run(t *testing.T, killAt int, abandon bool) (steps int) {
	t.Helper()
	var err error
	if l.dir, err = os.MkdirTemp("", "sfs"); err != nil {
		t.Fatal(err)
	}
	if l.log, err = os.Create(l.dir + ".log"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkNoLeaks(t, l.dir)
		l.log.Close()
		if !t.Failed() {
			if err := errors.Join(os.RemoveAll(l.dir), os.Remove(l.log.Name())); err != nil {
				t.Error(err)
			}
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := splitfstest.Install(l.dir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(self, filepath.Join(l.dir, driverName)),
		os.WriteFile(filepath.Join(l.dir, "libsplit.so"), []byte("not a library"), 0o644)); err != nil {
		t.Fatal(err)
	}
	l.staging, l.target = filepath.Join(l.dir, "staging"), filepath.Join(l.dir, "target")

	l.start(t, killAt)
	if !l.connect(t) {
		t.Logf("killed at start at %s", l.process.Killed())
		l.end(t)
		l.restart(t)
	}
	killedIn := ""
	deadline := time.Now().Add(10 * time.Minute)
	todo := l.steps()
	for i := 0; i < len(todo); i++ {
		step := todo[i]
		if killedIn != "" && abandon && !step.undo && (!step.makes || killedIn != step.name) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		err := step.call(ctx, t)
		cancel()
		steps = max(steps, l.process.Calls())
		if at := l.process.Killed(); at != "" {
			t.Logf("killed in %s at %s", step.name, at)
			killedIn = step.name
			l.end(t)
			l.restart(t)
			i-- // the same call again, or the next one that takes the volume down
			continue
		}
		// it is busy, with erasing what the call before had begun
		if status.Code(err) == codes.Aborted && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
			i--
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v (status %s); the log: %s", step.name, err, status.Code(err), l.log.Name())
		}
	}
	l.end(t)
	l.checkNothingLeft(t)
	return steps
}

// restart starts a driver that is not killed.
func (l *life) restart(t *testing.T) {
	t.Helper()
	l.start(t, 0)
	if !l.connect(t) {
		t.Fatal("a driver that was not to be killed was")
	}
}

func (l *life) checkNothingLeft(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"volumes", "volumes/snapshots", "volumes/settle", "emulated"} {
		entries, err := os.ReadDir(filepath.Join(l.dir, "data", dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		for _, e := range entries {
			if (dir != "volumes" || !e.IsDir()) && e.Name() != ".reserve" { // which the next volumes have
				t.Errorf("left in %s: %s", dir, e.Name())
			}
		}
	}
	// The sockets, one version of the library, and the link to it.
	entries, err := os.ReadDir(filepath.Join(l.dir, "data", "inject"))
	if err != nil || len(entries) != 3 {
		t.Errorf("in the inject directory: %v, %v", entries, err)
	}
	for _, path := range []string{l.staging, l.target} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("left: %s", path)
		}
	}
}
