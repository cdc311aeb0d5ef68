// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// envThin names a region for thin pools; csi-driver/test/vm-devices runs these tests in a virtual machine.
const envThin = "SPLITFS_TEST_THIN"

const (
	// thinSize is more than the pool has left when two volumes of this size are staged and one is written to.
	thinSize     = 384 * volume.MiB
	thinPoolSize = "448Mi"
	thinClasses  = `[{"name":"thick"},{"name":"thin","type":"thin","default":true,` +
		`"thinPool":{"name":"pool0","size":"` + thinPoolSize + `","overprovisionRatio":5}}]`
)

func serveThin(t *testing.T) *service {
	t.Helper()
	region := os.Getenv(envThin)
	if region == "" {
		t.Skip(envThin + " gives no persistent memory to this test; csi-driver/test/vm-devices runs it in a virtual machine")
	}
	return serveDevicesWith(t, realDevice{volume.DeviceLVM, region, volume.XFS}, thinClasses)
}

func thinClass(changes ...string) map[string]string {
	class := map[string]string{"mode": "strict", "device": "lvm", "deviceClass": "thin", "durability": "any"}
	for _, change := range changes {
		key, value, _ := strings.Cut(change, "=")
		if class[key] = value; value == "" {
			delete(class, key)
		}
	}
	return class
}

func (s *service) createThin(name string, class map[string]string) (volumeOnNode, error) {
	resp, err := csi.NewControllerClient(s.conn).CreateVolume(context.Background(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: thinSize}, Parameters: class,
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability(volume.XFS)},
	})
	return volumeOnNode{
		id: resp.GetVolume().GetVolumeId(), context: resp.GetVolume().GetVolumeContext(), fsType: volume.XFS,
		staging: filepath.Join(s.dir, "staging-"+name), target: filepath.Join(s.dir, "target-"+name),
	}, err
}

// TestRealThin takes thin volumes through their life: what is promised is more than there is, they are emulated ones, a
// snapshot is there at once, and what was acknowledged before a pool was full is not lost.
func TestRealThin(t *testing.T) {
	s := serveThin(t)
	resp, err := csi.NewControllerClient(s.conn).GetCapacity(context.Background(), &csi.GetCapacityRequest{
		Parameters: thinClass(), VolumeCapabilities: []*csi.VolumeCapability{mountCapability(volume.XFS)},
	})
	s.must(err) // the pool is made when somebody asks for the first time
	pool := s.thinPool()
	if pool.State() != device.PoolWell || pool.Class != "thin" || pool.Data != 448*volume.MiB {
		t.Fatalf("the pool: %+v", pool)
	}
	if resp.GetAvailableCapacity() < 2*pool.Data || resp.GetAvailableCapacity() > 5*pool.Data {
		t.Errorf("capacity %d of a pool of %d, %v", resp.GetAvailableCapacity(), pool.Data, err)
	}
	for what, class := range map[string]map[string]string{
		"no direct access": thinClass("durability="), "DAX": thinClass("durability=required"),
		"zeroed before": thinClass("erase=overwrite"),
	} {
		if _, err := s.createThin("refused", class); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("%v: %v; wanted %q", class, err, what)
		}
	}
	realSnapshot(t, s, volume.XFS, thinClass())
	if left := s.thinPool(); left.Virtual != 0 {
		t.Errorf("deleted volumes are promised space: %s", left)
	}
	fillThin(t, s)
	if left := s.thinPool(); left.Virtual != 0 || left.State() != device.PoolWell {
		t.Errorf("left: %s", left)
	}
}

// thinPool is the pool as the driver's manager sees it.
func (s *service) thinPool() device.Pool {
	s.t.Helper()
	managers, err := s.options.devices.managers("node-1", events.Discard{}, nil)
	s.must(err)
	m, err := managers.Get(volume.DeviceLVM)
	s.must(err)
	pools, err := m.(device.Thin).Thin().(device.Pooled).Pools(context.Background())
	if err != nil || len(pools) != 1 {
		s.t.Fatalf("pools: %v, %v", pools, err)
	}
	return pools[0]
}

// fillRecords appends records of 64 KiB, each full of its own number, and forces each one, until that fails; it prints
// how many were acknowledged, and what the failure said.
const fillRecords = `import os, sys
done = 0
try:
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    while True:
        record = bytes([done % 251 + 1]) * 65536
        if os.write(fd, record) != len(record):
            raise OSError("short write")
        os.fsync(fd)
        done += 1
except OSError as e:
    print(done, e, flush=True)
os._exit(0)`

// fillThin writes into a volume until the pool has no space. What was acknowledged is there afterwards, and nothing new
// was made meanwhile.
func fillThin(t *testing.T, s *service) {
	v, err := s.createThin("filled", thinClass())
	s.must(err)
	ballast, err := s.createThin("ballast", thinClass())
	s.must(err)
	inject := filepath.Join(s.dir, "inject-fill")
	s.must(s.stage(v), s.publish(v), s.publishLibrary(inject), s.stage(ballast), s.publish(ballast))
	out, err := exec.Command("dd", "if=/dev/urandom", "of="+filepath.Join(ballast.target, "file"), "bs=1M", "count=96",
		"conv=fsync").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	writer := commandWithLibrary(inject, "strict", v.target, "python3", "-c", fillRecords, v.target+"/records")
	said, err := writer.Output()
	s.must(err)
	words := strings.SplitN(string(said), " ", 2)
	acknowledged, err := strconv.Atoi(words[0])
	s.must(err)
	pool := s.thinPool()
	t.Logf("%d records were acknowledged, then: %s; %s", acknowledged, strings.TrimSpace(words[1]), pool)
	if pool.State() != device.PoolFull || acknowledged == 0 {
		t.Fatalf("the pool is not full")
	}
	if _, err := s.createThin("more", thinClass()); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "pool") {
		t.Errorf("a new volume in a full pool: %v", err)
	}
	_, err = csi.NewControllerClient(s.conn).CreateSnapshot(context.Background(), &csi.CreateSnapshotRequest{
		Name: "more", SourceVolumeId: v.id,
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a snapshot in a full pool: %v", err)
	}
	for _, metric := range []string{
		`splitfs_thin_pool_refuses{class="thin",pool="pool0",region="` + os.Getenv(envThin) + `"} 1`,
	} {
		if body := s.metrics(); !strings.Contains(body, metric) {
			t.Errorf("no %s in:\n%s", metric, grep(body, "thin_pool"))
		}
	}
	s.must(s.unpublish("csi-0", inject), s.unpublish(v.id, v.target), s.unstage(v))
	s.must(s.unpublish(ballast.id, ballast.target), s.unstage(ballast), s.delete(ballast))
	s.must(s.stage(v), s.publish(v))
	checkRecords(t, filepath.Join(v.target, "records"), acknowledged)
	s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
}

func checkRecords(t *testing.T, path string, acknowledged int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(content) < acknowledged*65536 {
		t.Errorf("%d records were acknowledged, and the file has %d bytes", acknowledged, len(content))
	}
	for i := range min(acknowledged, len(content)/65536) {
		if !bytes.Equal(content[i*65536:(i+1)*65536], bytes.Repeat([]byte{byte(i%251 + 1)}, 65536)) {
			t.Fatalf("record %d of %d is not what was acknowledged", i, acknowledged)
		}
	}
}

// metrics waits for a scrape, which runs lvm on a slow machine.
func (s *service) metrics() string {
	s.t.Helper()
	client := http.Client{Timeout: 2 * time.Minute}
	resp, err := client.Get("http://" + s.options.httpEndpoint + "/metrics")
	s.must(err)
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	s.must(err)
	return body.String()
}

// TestRealThinGroup: snapshots of two thin volumes that are written meanwhile are of one moment, and the writers wait
// for a moment only. A kernel that cannot do it says so.
func TestRealThinGroup(t *testing.T) {
	s := serveThin(t)
	one, two := s.createFrom("one", volume.XFS, thinClass(), nil), s.createFrom("two", volume.XFS, thinClass(), nil)
	s.must(s.stage(one), s.publish(one), s.stage(two), s.publish(two))
	counter := exec.Command("python3", "-c", countInTurn, filepath.Join(one.target, "n"), filepath.Join(two.target, "n"))
	stop, err := counter.StdinPipe()
	s.must(err)
	var said bytes.Buffer
	counter.Stdout = &said
	s.must(counter.Start())
	time.Sleep(2 * time.Second)
	groups := csi.NewGroupControllerClient(s.conn)
	request := &csi.CreateVolumeGroupSnapshotRequest{Name: "group", SourceVolumeIds: []string{one.id, two.id}}
	group, err := groups.CreateVolumeGroupSnapshot(context.Background(), request)
	for status.Code(err) == codes.Aborted || err == nil && !group.GetGroupSnapshot().GetReadyToUse() {
		group, err = groups.CreateVolumeGroupSnapshot(context.Background(), request)
	}
	s.must(stop.Close(), counter.Wait())
	t.Logf("the writer: %s", said.String())
	if os.Getenv("SPLITFS_TEST_NESTS") == "no" {
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "6.8 and newer can") {
			t.Errorf("a kernel that cannot freeze twice: %v", err)
		}
	} else {
		s.must(err)
		checkGroup(t, s, group.GetGroupSnapshot())
	}
	for _, v := range []volumeOnNode{one, two} {
		s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
	}
}

// countInTurn writes ever higher numbers, first into one file and then into the other, each durable before the next,
// until its input ends, and says how many and how long the longest one took.
const countInTurn = `import os, select, sys, time
fds = [os.open(p, os.O_WRONLY | os.O_CREAT, 0o644) for p in sys.argv[1:]]
n, longest = 0, 0
while not select.select([sys.stdin], [], [], 0)[0]:
    n += 1
    for fd in fds:
        began = time.monotonic()
        os.pwrite(fd, b"%016d" % n, 0)
        os.fsync(fd)
        longest = max(longest, time.monotonic() - began)
print("%d numbers, the longest write took %.3f s" % (n, longest))`

// checkGroup: the second file is never ahead of the first, and behind it by one at most.
func checkGroup(t *testing.T, s *service, group *csi.VolumeGroupSnapshot) {
	t.Helper()
	var numbers []int
	var ids []string
	for i, snapshot := range group.GetSnapshots() {
		ids = append(ids, snapshot.GetSnapshotId())
		v := s.createFrom(fmt.Sprintf("of-group-%d", i), volume.XFS, thinClass(), &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot.GetSnapshotId()},
			}})
		s.must(s.stage(v), s.publish(v))
		content, err := os.ReadFile(filepath.Join(v.target, "n"))
		s.must(err)
		n, err := strconv.Atoi(strings.TrimLeft(string(content), "0"))
		s.must(err)
		if snapshot.GetSourceVolumeId() == volume.IDFromName("two") {
			n = -n
		}
		numbers = append(numbers, n)
		s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
	}
	if len(numbers) != 2 || numbers[0]+numbers[1] < -1 || numbers[0]+numbers[1] > 1 {
		t.Errorf("the group has %v", numbers)
	}
	if sum := numbers[0] + numbers[1]; sum < 0 {
		t.Errorf("what was written second is there without what was written first: %v", numbers)
	}
	_, err := csi.NewGroupControllerClient(s.conn).DeleteVolumeGroupSnapshot(context.Background(),
		&csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	s.must(err)
}
