// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// TestRealDevicesBad makes the kernel believe that a block of a file is bad, as it does after a machine check, until
// its next boot: that is the volume's health, reading the file fails, and everything else goes on.
func TestRealDevicesBad(t *testing.T) {
	for _, d := range realDevices(t) {
		t.Run(d.device, func(t *testing.T) { realBad(t, d) })
	}
}

func realBad(t *testing.T, d realDevice) {
	s := serveDevices(t, d)
	v, err := s.createReal(d, "bad", realSize)
	s.must(err, s.stage(v), s.publish(v))
	content := bytes.Repeat([]byte("sixteen bytes..."), 64<<10)
	for _, name := range []string{"broken", "well"} {
		s.must(os.WriteFile(filepath.Join(v.target, name), content, 0o644))
	}
	s.must(exec.Command("sync", "-f", v.target).Run())
	if health := s.health(v); health != "" {
		t.Errorf("health of a new volume: %s", health)
	}
	breakBlock(t, v, "broken")

	if health := s.health(v); !strings.HasPrefix(health, "DATA_LOSS BadBlocks 4096 bytes") {
		t.Errorf("health: %q", health)
	}
	if _, err := os.ReadFile(filepath.Join(v.target, "broken")); !errors.Is(err, syscall.EIO) {
		t.Errorf("reading a bad block: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(v.target, "well")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("another file has %d bytes, %v", len(got), err)
	}
	inject := filepath.Join(s.dir, "inject-bad")
	s.must(s.publishLibrary(inject))
	runWithLibrary(t, inject, "strict", v.target, "python3", "-c", appendBlocks, v.target+"/appended", "8")
	// In a program with the library what is read is a mapping, and the kernel's word for a bad page of one is a signal.
	out, err := commandWithLibrary(inject, "strict", v.target, "cat", filepath.Join(v.target, "broken")).Output()
	t.Logf("a program with the library read %d bytes: %v", len(out), err)
	if err == nil || !bytes.HasPrefix(content, out) {
		t.Errorf("a program with the library read %d bytes around a bad block, %v", len(out), err)
	}
	s.must(s.unpublish("csi-0", inject), s.unpublish(v.id, v.target), s.unstage(v), s.stage(v), s.publish(v))
	checkSize(t, filepath.Join(v.target, "appended"), 8*4096)
	s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
}

// health is what kubelet is told of a volume, one problem a line.
func (s *service) health(v volumeOnNode) string {
	s.t.Helper()
	resp, err := csi.NewNodeClient(s.conn).NodeGetVolumeHealth(context.Background(), &csi.NodeGetVolumeHealthRequest{
		VolumeId: v.id,
	})
	s.must(err)
	var lines []string
	for _, p := range resp.GetVolumeHealth().GetHealthStatuses() {
		lines = append(lines, fmt.Sprintf("%s %s %s", p.GetStatus(), p.GetReason(), p.GetMessage()))
	}
	return strings.Join(lines, "\n")
}

// breakBlock adds the first page of a file to the list of bad blocks of the memory it is in.
func breakBlock(t *testing.T, v volumeOnNode, name string) {
	t.Helper()
	script(t, `
sector=$(filefrag -b512 -v "$1" | awk '$1 == "0:" {print $4 + 0}')
disk=$(basename "$(readlink "/sys/dev/block/$(findmnt --noheadings --output MAJ:MIN --target "$2" | tr -d ' ')")")
case $disk in
dm-*)
	read -r _ _ _ _ start < <(dmsetup table "/dev/$disk")
	sector=$((sector + start))
	disk=$(ls "/sys/block/$disk/slaves")
	;;
esac
echo "$sector 8" >"/sys/block/$disk/badblocks"
grep -qx "$sector 8" "/sys/block/$disk/badblocks"`, filepath.Join(v.target, name), v.staging)
}
