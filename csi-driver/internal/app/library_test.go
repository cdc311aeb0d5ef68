// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/driver"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

var libraryClass = map[string]string{"splitfs.io/kind": "library"}

func readerCapability() *csi.VolumeCapability {
	c := mountCapability("xfs")
	c.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	return c
}

// TestLibraryClaim: a claim of the library's class is the library, read-only, from its creation to its end and over a
// restart of the service; it takes neither space nor state, and each call can be repeated.
func TestLibraryClaim(t *testing.T) {
	s := startNode(t, "", "")
	staging, target := filepath.Join(s.dir, "staging"), filepath.Join(s.dir, "target")
	create := func(ctx context.Context, change func(*csi.CreateVolumeRequest)) (*csi.Volume, error) {
		req := &csi.CreateVolumeRequest{
			Name:          "pvc-1",
			Parameters:    map[string]string{"splitfs.io/kind": "library", "csi.storage.k8s.io/pvc/name": "p-splitfs-library"},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 1}, VolumeCapabilities: []*csi.VolumeCapability{readerCapability()},
		}
		if change != nil {
			change(req)
		}
		resp, err := csi.NewControllerClient(s.conn).CreateVolume(ctx, req)
		return resp.GetVolume(), err
	}
	for _, c := range []struct {
		name    string
		change  func(*csi.CreateVolumeRequest)
		code    codes.Code
		message string
	}{
		{"a writer", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{mountCapability("xfs")}
		}, codes.InvalidArgument, "accessModes: [ReadOnlyMany]"},
		{"a reader and a writer", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, mountCapability("xfs"))
		}, codes.InvalidArgument, "accessModes: [ReadOnlyMany]"},
		{"a raw device", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, codes.InvalidArgument, "volumeMode: Filesystem"},
		{"a mount option", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].GetMount().MountFlags = []string{"noatime"}
		}, codes.InvalidArgument, "takes no mount options"},
		{"a copy", func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume.IDFromName("x")}}}
		}, codes.InvalidArgument, "cannot be a copy"},
		{"a mode", func(r *csi.CreateVolumeRequest) { r.Parameters["mode"] = "strict" }, codes.InvalidArgument,
			`unknown StorageClass parameter "mode"`},
		{"another kind", func(r *csi.CreateVolumeRequest) { r.Parameters["splitfs.io/kind"] = "scratch" },
			codes.InvalidArgument, "allowed: library"},
		{"another node", func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{driver.Topology("node-2")}}
		}, codes.ResourceExhausted, "this is node node-1"},
	} {
		if _, err := create(t.Context(), c.change); status.Code(err) != c.code || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	vol, err := create(t.Context(), nil)
	s.must(err)
	again, err := create(t.Context(), nil)
	s.must(err)
	if again.GetVolumeId() != vol.GetVolumeId() || vol.GetCapacityBytes() != 0 ||
		vol.GetAccessibleTopology()[0].GetSegments()["csi.splitfs.io/node"] != "node-1" {
		t.Errorf("made %v, then %v", vol, again)
	}
	capacity, err := csi.NewControllerClient(s.conn).GetCapacity(t.Context(), &csi.GetCapacityRequest{
		Parameters: libraryClass,
	})
	s.must(err)
	if capacity.GetAvailableCapacity() != volume.GiB || capacity.GetMaximumVolumeSize().GetValue() != volume.GiB {
		t.Errorf("capacity of the class: %v", capacity)
	}

	volumeContext := map[string]string{
		"csi.storage.k8s.io/ephemeral": "false", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.uid": "1",
		"storage.kubernetes.io/csiProvisionerIdentity": "x",
	}
	for k, v := range vol.GetVolumeContext() {
		volumeContext[k] = v
	}
	use := func(c *csi.VolumeCapability) error {
		nodeClient := csi.NewNodeClient(s.conn)
		_, stageErr := nodeClient.NodeStageVolume(context.Background(), &csi.NodeStageVolumeRequest{
			VolumeId: vol.GetVolumeId(), StagingTargetPath: staging, VolumeCapability: c, VolumeContext: volumeContext,
		})
		_, err := nodeClient.NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{
			VolumeId: vol.GetVolumeId(), StagingTargetPath: staging, TargetPath: target, VolumeCapability: c,
			VolumeContext: volumeContext,
		})
		return errors.Join(stageErr, err)
	}
	if err := use(mountCapability("xfs")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("published for a writer: %v", err)
	}
	s.must(use(readerCapability()), use(readerCapability()))
	content, err := os.ReadFile(filepath.Join(target, "libsplit.so"))
	if err != nil || string(content) != "not a library" {
		t.Errorf("the pod sees %q, %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(target, "x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing into it: %v", err)
	}
	s.stop()
	s.start()
	s.must(use(readerCapability()))
	if state, err := filepath.Glob(filepath.Join(s.options.dataDir, "volumes", "*.json")); err != nil || len(state) != 0 {
		t.Errorf("the claim left state: %v, %v", state, err)
	}
	if _, err := csi.NewNodeClient(s.conn).NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
		VolumeId: vol.GetVolumeId(), VolumePath: target,
	}); err != nil {
		t.Errorf("its statistics: %v", err)
	}
	for range 2 {
		s.must(s.unpublish(vol.GetVolumeId(), target))
		_, err = csi.NewNodeClient(s.conn).NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
			VolumeId: vol.GetVolumeId(), StagingTargetPath: staging,
		})
		s.must(err)
		_, err = csi.NewControllerClient(s.conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{
			VolumeId: vol.GetVolumeId(),
		})
		s.must(err)
	}
}
