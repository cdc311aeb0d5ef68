// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestRealPool: volumes of classes with pools of different sizes on one node, each with its own: from the beginning,
// after its agent died, and after the node service came back with another size for volumes that say nothing.
func TestRealPool(t *testing.T) {
	binary, library := realParts(t)
	s := startNode(t, binary, library)
	volumes := map[string]volumeOnNode{}
	for _, pool := range []string{"", "64Mi", "256Mi"} {
		class := map[string]string{"mode": "strict", "pool": pool}
		if pool == "" {
			delete(class, "pool")
		}
		volumes[pool] = s.createOfClass("pool-"+pool, class)
		s.must(s.stage(volumes[pool]), s.publish(volumes[pool]))
	}
	check := func(when string) {
		t.Helper()
		for pool, want := range map[string]int64{"": 32 * volume.MiB, "64Mi": 64 * volume.MiB, "256Mi": 256 * volume.MiB} {
			eventually(t, fmt.Sprintf("%s the pool of class %q has %d bytes", when, pool, want), func() error {
				_, body := s.get("/metrics")
				words := strings.Fields(grep(grep(body, volumes[pool].id), "splitfs_volume_pool_bytes"))
				if len(words) == 0 {
					return errors.New("it has no agent")
				}
				// What the last 16 MiB are kept for, small staging files, are made as programs want them.
				if is, err := strconv.ParseFloat(words[len(words)-1], 64); err != nil || is > float64(want) ||
					is <= float64(want-16*volume.MiB) {
					return fmt.Errorf("it has %v bytes, %w", is, err)
				}
				return nil
			})
		}
	}
	check("at first")
	for _, v := range volumes {
		killAgent(t, v.staging)
	}
	check("after its agent was killed")
	s.stop()
	s.options.poolBytes = 48 * quantity(volume.MiB)
	s.start()
	check("after the node service was started anew")

	inject := filepath.Join(s.dir, "inject")
	s.must(s.publishLibrary(inject))
	large := volumes["256Mi"]
	runWithLibrary(t, inject, "strict", large.target, "python3", "-c", appendBlocks, large.target+"/appended", "12000")
	checkSize(t, filepath.Join(large.target, "appended"), 12000*4096)
	check("after it was used")

	s.must(s.unpublish("csi-0", inject))
	for _, v := range volumes {
		s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
	}
	if _, err := csi.NewControllerClient(s.conn).CreateVolume(context.Background(), &csi.CreateVolumeRequest{
		Name: "refused", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("xfs")},
		Parameters: map[string]string{"pool": "1Mi"},
	}); err == nil || !strings.Contains(err.Error(), "allowed: 32Mi to 1Ti") {
		t.Errorf("a pool of 1 MiB: %v", err)
	}
}

// TestExpandBesideLargePool: a volume can grow on a node that has no room for another one of its class, with a pool of
// its own; and by as much as the node offers, which is what the controller goes by.
func TestExpandBesideLargePool(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		t.Run(fsType, func(t *testing.T) {
			s := startNode(t, "", "")
			class := map[string]string{"pool": "2600Mi", "csi.storage.k8s.io/fstype": fsType}
			offered := func() *csi.GetCapacityResponse {
				resp, err := csi.NewControllerClient(s.conn).GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: class})
				s.must(err)
				return resp
			}
			v := s.createFrom("large-pool", fsType, class, nil)
			s.must(s.stage(v), s.publish(v))
			if largest := offered().GetMaximumVolumeSize().GetValue(); largest != 0 {
				t.Errorf("another volume of %d bytes could be made", largest)
			}
			growth := offered().GetAvailableCapacity()
			if growth < 64*volume.MiB {
				t.Errorf("volumes can grow by %d", growth)
			}
			for more, want := range map[int64]codes.Code{growth: codes.OK, growth + 16*volume.MiB: codes.OutOfRange} {
				_, err := csi.NewControllerClient(s.conn).ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
					VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 64*volume.MiB + more},
				})
				if status.Code(err) != want {
					t.Errorf("%d are offered, growing by %d: %v", growth, more, err)
				}
			}
			s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
		})
	}
}
