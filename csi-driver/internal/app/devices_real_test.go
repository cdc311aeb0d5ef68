// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// The tests of this file change the persistent memory of the machine they run on. csi-driver/test/vm-devices runs them
// in a virtual machine, and says by the environment what they may use.
const (
	envRegions = "SPLITFS_TEST_REGIONS" // device=region of each kind, comma separated
	envDir     = "SPLITFS_TEST_DIR"     // survives the machine's reboot
	// device=path of volumes of pmem-csi to copy, comma separated; none, where the variable is not set
	envOld  = "SPLITFS_TEST_OLD"
	envDAX  = "SPLITFS_TEST_DAX"  // the program dax_check
	envCall = "SPLITFS_TEST_CALL" // this process makes or deletes a device
)

// realDevice is a kind of device and the file system it is tested with.
type realDevice struct{ device, region, fsType string }

func realDevices(t *testing.T) []realDevice {
	t.Helper()
	list := os.Getenv(envRegions)
	if list == "" {
		t.Skip(
			envRegions + " gives no persistent memory to this test; csi-driver/test/vm-devices runs it in a virtual machine")
	}
	fsTypes := map[string]string{volume.DeviceLVM: volume.XFS, volume.DeviceNamespace: volume.Ext4}
	var devices []realDevice
	for word := range strings.SplitSeq(list, ",") {
		kind, region, _ := strings.Cut(word, "=")
		devices = append(devices, realDevice{kind, region, fsTypes[kind]})
	}
	return devices
}

func (d realDevice) options() deviceOptions {
	return deviceOptions{
		devices: []string{d.device}, regions: []string{d.region}, regionPercent: 100, namespaceMap: string(nvdimm.MapDev),
	}
}

// serveDevices starts the service for one kind of device, with state that a later boot finds again.
func serveDevices(t *testing.T, d realDevice) *service {
	t.Helper()
	return serveDevicesWith(t, d, "")
}

// serveDevicesWith is serveDevices with device classes.
func serveDevicesWith(t *testing.T, d realDevice, classes string) *service {
	t.Helper()
	binary, library := realParts(t)
	dir := filepath.Join(os.Getenv(envDir), d.device)
	s := &service{t: t, dir: dir}
	s.options = nodeOptions{
		nodeName: "node-1", kubeletDir: filepath.Join("/run/kubelet", d.device), dataDir: filepath.Join(dir, "data"),
		devices:   d.options(),
		poolBytes: quantity(32 * volume.MiB), logReserve: quantity(32 * volume.MiB), poolFillPercent: 25, maxVolumes: 16,
		freezeLimit: time.Second,
		// A call that meets the watch is aborted and repeated, by kubelet; here each is made once.
		watchInterval: time.Hour,

		binary: binary, library: library, httpEndpoint: charttest.FreeAddress(t),
	}
	s.options.devices.lvmClasses = classes
	if err := s.options.complete(); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *service) createReal(d realDevice, name string, bytes int64) (volumeOnNode, error) {
	resp, err := csi.NewControllerClient(s.conn).CreateVolume(context.Background(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability(d.fsType)},
		Parameters:         map[string]string{"mode": "strict", "device": d.device},
	})
	return volumeOnNode{
		id: resp.GetVolume().GetVolumeId(), context: resp.GetVolume().GetVolumeContext(), fsType: d.fsType,
		staging: filepath.Join(s.dir, "staging-"+name), target: filepath.Join(s.dir, "target-"+name),
	}, err
}

const realSize = 192 * volume.MiB

// TestRealDevices takes a volume of each kind through its life, on real persistent memory, every call twice, and leaves
// one for the next boot.
func TestRealDevices(t *testing.T) {
	for _, d := range realDevices(t) {
		t.Run(d.device, func(t *testing.T) { realLife(t, d) })
	}
}

func realLife(t *testing.T, d realDevice) {
	s := serveDevices(t, d)
	before := s.capacity(d)
	if before < 2*realSize {
		t.Fatalf("capacity %d", before)
	}
	v, err := s.createReal(d, "one", realSize)
	s.must(err)
	if again, err := s.createReal(d, "one", realSize); err != nil || again.id != v.id {
		t.Fatalf("created twice: %s, %v", again.id, err)
	}
	if after := s.capacity(d); after > before-realSize {
		t.Errorf("capacity %d before and %d after a volume of %d bytes", before, after, realSize)
	}
	s.must(s.stage(v), s.stage(v), s.publish(v), s.publish(v))
	checkRealDAX(t, v)

	inject := filepath.Join(s.dir, "inject-one")
	s.must(s.publishLibrary(inject))
	runWithLibrary(t, inject, "strict", v.target, "python3", "-c", appendBlocks, v.target+"/appended", "64")
	checkSize(t, filepath.Join(v.target, "appended"), 64*4096)

	migrateReal(t, d, v)
	expandReal(t, s, d, v)
	if _, err := s.createReal(d, "huge", 1<<40); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a volume larger than all memory: %v", err)
	}
	if err := s.delete(v); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("deleting a volume in use: %v", err)
	}
	manager, err := manager(d)
	s.must(err)
	if err := manager.Delete(context.Background(), v.id); err == nil {
		t.Fatal("the manager deleted a device that is mounted")
	}
	s.must(s.unpublish("csi-0", inject), s.unpublish(v.id, v.target), s.unpublish(v.id, v.target), s.unstage(v),
		s.unstage(v))
	eraseReal(t, s, d, manager)

	s.must(s.stage(v), s.publish(v))
	checkSize(t, filepath.Join(v.target, "appended"), 64*4096)
	keepReal(s, d)
	s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v), s.delete(v))
	if path, err := manager.Attach(context.Background(), v.id); err == nil {
		t.Errorf("a deleted volume is attached as %s", path)
	}
}

// keepReal makes a volume that a later boot is to find.
func keepReal(s *service, d realDevice) {
	s.t.Helper()
	kept, err := s.createReal(d, "kept", realSize)
	s.must(err, s.stage(kept), s.publish(kept))
	checkRealDAX(s.t, kept)
	inject := filepath.Join(s.dir, "inject-kept")
	s.must(s.publishLibrary(inject))
	runWithLibrary(s.t, inject, "strict", kept.target, "python3", "-c", appendBlocks, kept.target+"/appended", "8")
	s.must(os.WriteFile(filepath.Join(kept.target, "file"), []byte("from another boot"), 0o644))
	s.must(s.unpublish("csi-0", inject), s.unpublish(kept.id, kept.target), s.unstage(kept))
}

// TestRealDevicesKept is the least of a volume's life, for memory whose emulation is too slow for all of it.
func TestRealDevicesKept(t *testing.T) {
	for _, d := range realDevices(t) {
		t.Run(d.device, func(t *testing.T) { keepReal(serveDevices(t, d), d) })
	}
}

// eraseReal looks at what a deleted volume leaves in the memory, through the next device that is made there:
// everything, unless its class says that it is to be overwritten.
func eraseReal(t *testing.T, s *service, d realDevice, manager device.Manager) {
	t.Helper()
	ctx := context.Background()
	for erase, left := range map[string]bool{"none": true, "overwrite": false} {
		resp, err := csi.NewControllerClient(s.conn).CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: "erase-" + erase, CapacityRange: &csi.CapacityRange{RequiredBytes: realSize},
			VolumeCapabilities: []*csi.VolumeCapability{mountCapability(d.fsType)},
			Parameters:         map[string]string{"mode": "posix", "device": d.device, "erase": erase},
		})
		s.must(err)
		v := volumeOnNode{
			id: resp.GetVolume().GetVolumeId(), context: resp.GetVolume().GetVolumeContext(), fsType: d.fsType,
			staging: filepath.Join(s.dir, "staging-erase"), target: filepath.Join(s.dir, "target-erase"),
		}
		s.must(s.stage(v), s.publish(v))
		secret := []byte("secret of " + erase + ".......")
		s.must(os.WriteFile(filepath.Join(v.target, "file"), bytes.Repeat(secret, 8<<20/len(secret)), 0o644))
		s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v), s.delete(v))
		eventually(t, "the device of a deleted volume is gone", func() error {
			if path, err := manager.Attach(ctx, v.id); err == nil {
				return fmt.Errorf("it is %s", path)
			}
			return nil
		})
		next := volume.IDFromName("after-" + erase)
		s.must(manager.Create(ctx, next, realSize+128*volume.MiB))
		dev, err := manager.Attach(ctx, next)
		s.must(err)
		found, err := countInDevice(dev, secret)
		s.must(err, manager.Detach(ctx, next), manager.Delete(ctx, next))
		t.Logf("erase %s: found what was stored %d times", erase, found)
		if found > 0 != left {
			t.Errorf("erase %s: what was stored is there %d times", erase, found)
		}
	}
}

// countInDevice says how often a device holds the text, reading a piece at a time: the machine has less memory than the
// device needs.
func countInDevice(path string, text []byte) (int, error) {
	device, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer device.Close()
	buffer := make([]byte, 1<<20)
	for found, kept := 0, 0; ; {
		n, err := device.Read(buffer[kept:])
		have := kept + n
		found += bytes.Count(buffer[:have], text)
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return 0, err
		}
		// What may be the beginning of one.
		kept = min(have, len(text)-1)
		copy(buffer, buffer[have-kept:have])
	}
}

// migrateReal copies an old volume with the commands of docs/migrate-pmem-csi.md.
func migrateReal(t *testing.T, d realDevice, v volumeOnNode) {
	t.Helper()
	volumes, any := os.LookupEnv(envOld)
	if !any {
		return
	}
	for word := range strings.SplitSeq(volumes, ",") {
		kind, old, _ := strings.Cut(word, "=")
		if kind != d.device {
			continue
		}
		cmd := exec.Command("bash", "-euc", `mkdir -p "$new"/copied /mnt/old
mount -o ro "$old" /mnt/old
cp -a /mnt/old/. "$new"/copied/ && sync -f "$new" && diff -r --no-dereference /mnt/old "$new"/copied
umount /mnt/old`)
		cmd.Env = append(os.Environ(), "old="+old, "new="+v.target)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("copying %s: %v: %s", old, err, out)
		}
		checkSize(t, filepath.Join(v.target, "copied", "database", "current"), 3000000)
		return
	}
	t.Errorf("%s names no volume of pmem-csi for %s", envOld, d.device)
}

func (s *service) capacity(d realDevice) int64 {
	s.t.Helper()
	resp, err := csi.NewControllerClient(s.conn).GetCapacity(context.Background(), &csi.GetCapacityRequest{
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability(d.fsType)},
		Parameters:         map[string]string{"device": d.device, "csi.storage.k8s.io/fstype": d.fsType},
	})
	s.must(err)
	return resp.GetAvailableCapacity()
}

// expandReal grows a volume in use where its kind of device can, and is refused clearly where it cannot.
func expandReal(t *testing.T, s *service, d realDevice, v volumeOnNode) {
	t.Helper()
	const larger = realSize + 64*volume.MiB
	for range 2 {
		resp, err := csi.NewNodeClient(s.conn).NodeExpandVolume(context.Background(), &csi.NodeExpandVolumeRequest{
			VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, VolumeCapability: mountCapability(d.fsType),
			CapacityRange: &csi.CapacityRange{RequiredBytes: larger},
		})
		if d.device == volume.DeviceNamespace {
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "namespaces do not grow") {
				t.Errorf("expanding a namespace: %v", err)
			}
			continue
		}
		if err != nil || resp.GetCapacityBytes() != larger {
			t.Errorf("expanded to %d, %v", resp.GetCapacityBytes(), err)
		}
	}
	checkRealDAX(t, v)
}

// checkRealDAX runs the program that counts huge page faults, on what a pod sees and on the volume's pool, which is in
// whole 2 MiB.
func checkRealDAX(t *testing.T, v volumeOnNode) {
	t.Helper()
	source, err := exec.Command("findmnt", "--noheadings", "--output", "SOURCE", "--target", v.staging).Output()
	if err != nil {
		t.Fatal(err)
	}
	pool, err := filepath.Glob(filepath.Join(v.staging, ".splitfs", "pool", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"used", v.target, strings.TrimSpace(string(source))}, append([]string{"huge"}, pool...),
	} {
		out, err := exec.Command(os.Getenv(envDAX), args...).CombinedOutput()
		if err != nil {
			t.Errorf("dax_check: %v", err)
		}
		t.Logf("dax_check %s: %s", args[0], out)
	}
}

// TestRealDevicesAgain runs after a reboot: the volumes that were left are there, with what is in them.
func TestRealDevicesAgain(t *testing.T) {
	for _, d := range realDevices(t) {
		t.Run(d.device, func(t *testing.T) {
			s := serveDevices(t, d)
			kept, err := s.createReal(d, "kept", realSize)
			s.must(err, s.stage(kept), s.publish(kept))
			content, err := os.ReadFile(filepath.Join(kept.target, "file"))
			if err != nil || string(content) != "from another boot" {
				t.Errorf("read %q, %v", content, err)
			}
			checkSize(t, filepath.Join(kept.target, "appended"), 8*4096)
			checkRealDAX(t, kept)
			s.must(s.unpublish(kept.id, kept.target), s.unstage(kept), s.delete(kept))
		})
	}
}

func manager(d realDevice) (device.Manager, error) {
	o := d.options()
	managers, err := o.managers("node-1", events.Discard{}, nil)
	if err != nil {
		return nil, err
	}
	return managers.Get(d.device)
}

const (
	killID  = "splitfs-ffffffffffffffffffffffffffffffff"
	otherID = "splitfs-eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
)

// runDeviceCallIfAsked makes this process one that makes or deletes a device, to be killed meanwhile.
func runDeviceCallIfAsked() {
	kind, region, asked := strings.Cut(os.Getenv(envCall), "=")
	if !asked {
		return
	}
	d := realDevice{device: strings.TrimPrefix(kind, "delete:"), region: region}
	m, err := manager(d)
	if err == nil && d.device == kind {
		err = m.Create(context.Background(), killID, 64*volume.MiB)
	} else if err == nil {
		err = m.Delete(context.Background(), killID)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestRealDevicesKilled kills a process, and the programs it runs, while it makes or deletes a device, at moments
// spread over the time that takes. Whatever is there then, another device can be made, the same call made again ends
// well, and nothing is left.
func TestRealDevicesKilled(t *testing.T) {
	for _, d := range realDevices(t) {
		t.Run(d.device, func(t *testing.T) { realKills(t, d) })
	}
}

func realKills(t *testing.T, d realDevice) {
	ctx := context.Background()
	m, err := manager(d)
	must(t, err)
	must(t, m.Check(ctx))
	room, err := m.Available(ctx)
	must(t, err)
	if room == 0 {
		t.Fatal("no room")
	}
	making, deleting := d.device+"="+d.region, "delete:"+d.device+"="+d.region
	must(t, m.Create(ctx, killID, 64*volume.MiB)) // the first one makes what the others find
	must(t, m.Delete(ctx, killID))
	whole := time.Hour
	for range 2 { // the machine may have been busy with something else
		must(t, m.Delete(ctx, killID))
		begun := time.Now()
		if killDuring(t, making, time.Hour) {
			t.Fatal("killed after an hour")
		}
		whole = min(whole, time.Since(begun))
	}
	killed := 0
	const moments = 9
	for moment := range moments {
		at := whole * time.Duration(moment) / (moments - 1)
		killDuring(t, deleting, at)
		must(t, m.Delete(ctx, killID))
		if killDuring(t, making, at) {
			killed++
		}
		if moment%2 == 0 {
			must(t, m.Create(ctx, otherID, 32*volume.MiB))
			must(t, m.Delete(ctx, otherID))
		}
		must(t, m.Create(ctx, killID, 64*volume.MiB))
		path, err := m.Attach(ctx, killID)
		must(t, err)
		if size := blockSize(t, path); size < 64*volume.MiB {
			t.Errorf("%s has %d bytes", path, size)
		}
	}
	must(t, m.Delete(ctx, killID))
	if killed < moments/2 {
		t.Errorf("killed only %d times", killed)
	}
	t.Logf("killed %d times within the %s that making a device takes", killed, whole.Round(time.Millisecond))
	if after, err := m.Available(ctx); err != nil || after != room {
		t.Errorf("%d bytes available before, %d after, %v", room, after, err)
	}
}

// killDuring runs a call in a process group of its own and kills all of it after delay; false when it had ended by
// itself before.
func killDuring(t *testing.T, call string, delay time.Duration) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=none")
	cmd.Env = append(os.Environ(), envCall+"="+call)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(delay, func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Error(err)
		}
	})
	err := cmd.Wait()
	timer.Stop()
	if err != nil && cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("%s: %v: %s", call, err, output.String())
	}
	return err != nil
}

func blockSize(t *testing.T, path string) int64 {
	t.Helper()
	out, err := exec.Command("blockdev", "--getsize64", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
