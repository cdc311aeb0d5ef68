// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// heldBlocks is a program that writes so many blocks, each full of its own number, says so, and stays.
const heldBlocks = `import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for round in (0, 100):
    for i in range(int(sys.argv[2])):
        os.pwrite(fd, bytes([round + i]) * 4096, i * 4096)
print("done", flush=True)
time.sleep(1000)`

// TestRealSnapshot: what a living program has written in strict mode, and what is only in its log yet, is in a snapshot
// of its volume, wherever and whenever that is used.
func TestRealSnapshot(t *testing.T) {
	binary, library := realParts(t)
	s := startNode(t, binary, library)
	s.stop() // calls are not repeated here, so the service must not be busy looking after the volume
	s.options.watchInterval = time.Hour
	s.start()
	realSnapshot(t, s, "xfs", map[string]string{"mode": "strict"})
}

// TestRealDevicesCopied does the same on persistent memory, where the copies are mapped directly, and leaves it as it
// was.
func TestRealDevicesCopied(t *testing.T) {
	for _, d := range realDevices(t) {
		t.Run(d.device, func(t *testing.T) {
			s := serveDevices(t, d)
			before := s.capacity(d)
			realSnapshot(t, s, d.fsType, map[string]string{"mode": "strict", "device": d.device})
			if after := s.capacity(d); after != before {
				t.Errorf("capacity %d before and %d after", before, after)
			}
		})
	}
}

func realSnapshot(t *testing.T, s *service, fsType string, class map[string]string) {
	v := s.createFrom("original", fsType, class, nil)
	inject := filepath.Join(s.dir, "inject")
	s.must(s.stage(v), s.publish(v), s.publishLibrary(inject))
	const blocks = 64
	writer := commandWithLibrary(inject, "strict", v.target, "python3", "-c", heldBlocks, v.target+"/file",
		strconv.Itoa(blocks))
	writer.Env = append(writer.Env, "SPLITFS_VISIBILITY_MS=1000000")
	out, err := writer.StdoutPipe()
	s.must(err, writer.Start())
	defer func() {
		_ = writer.Process.Kill() // it may be gone already
		_ = writer.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "done\n" {
		t.Fatalf("the writer said %q, %v", line, err)
	}

	controller := csi.NewControllerClient(s.conn)
	request := &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: v.id}
	snapshot, err := controller.CreateSnapshot(context.Background(), request)
	// On a slow machine the call ends before the work does.
	for status.Code(err) == codes.Aborted || err == nil && !snapshot.GetSnapshot().GetReadyToUse() {
		snapshot, err = controller.CreateSnapshot(context.Background(), request)
	}
	s.must(err)
	store, err := volume.OpenSnapshots(filepath.Join(s.options.dataDir, "volumes", "snapshots"))
	s.must(err)
	rec, err := store.Get(snapshot.GetSnapshot().GetSnapshotId())
	s.must(err)
	if rec.Recovery == nil || rec.Recovery.Replayed == 0 || rec.Recovery.Quarantined != 0 {
		t.Errorf("nothing had to be replayed, so this test shows nothing: %+v", rec.Recovery)
	}
	s.must(writer.Process.Kill())
	r := s.createFrom("restored", fsType, class, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot.GetSnapshot().GetSnapshotId()},
	}})
	s.must(s.stage(r), s.publish(r))
	content, err := os.ReadFile(filepath.Join(r.target, "file"))
	if err != nil || !bytes.Equal(content, blocksOf(100, blocks)) {
		t.Errorf("the copy has %d bytes of the file that are not what was written, %v", len(content), err)
	}
	runWithLibrary(t, inject, "strict", r.target, "python3", "-c", appendBlocks, r.target+"/appended", "8")
	checkSize(t, filepath.Join(r.target, "appended"), 8*4096)
	if os.Getenv(envRegions) != "" {
		checkRealDAX(t, r)
	}
	_, err = controller.DeleteSnapshot(context.Background(), &csi.DeleteSnapshotRequest{
		SnapshotId: snapshot.GetSnapshot().GetSnapshotId(),
	})
	s.must(err, s.unpublish("csi-0", inject))
	for _, each := range []volumeOnNode{v, r} {
		s.must(s.unpublish(each.id, each.target), s.unstage(each), s.delete(each))
	}
}

// blocksOf is what heldBlocks has written in the end.
func blocksOf(first, count int) []byte {
	var out []byte
	for i := range count {
		out = append(out, bytes.Repeat([]byte{byte(first + i)}, 4096)...)
	}
	return out
}
