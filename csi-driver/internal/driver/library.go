// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// A pod gets the library by an inline volume, or, where the cluster forbids those, by a generic ephemeral volume of a
// StorageClass with splitfs.io/kind: library. The PersistentVolume of the second is a promise to show the node's
// library and nothing else: no device, no state, no capacity. So every call for it answers from the request alone, also
// after the node service was restarted.

// libraryRoom is the capacity that such a class is said to have, so that the scheduler, which compares it with the
// claim's size, never holds a pod back.
const libraryRoom = volume.GiB

// createLibrary answers for a claim of such a class.
func (c *Controller) createLibrary(ctx context.Context, req *csi.CreateVolumeRequest,
	params volume.Params) (*csi.CreateVolumeResponse, error) {
	capability, err := parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	if err := checkLibraryCapability(capability); err != nil {
		return nil, err
	}
	switch {
	case len(capability.flags) > 0:
		return nil, fmt.Errorf("%w: a volume of this StorageClass shows the library and takes no mount options; remove "+
			"mountOptions from the class", volume.ErrInvalid)
	case req.GetVolumeContentSource() != nil:
		return nil, fmt.Errorf(
			"%w: a volume of this StorageClass shows the library and cannot be a copy; remove dataSource from the claim",
			volume.ErrInvalid)
	}
	if err := c.checkTopology(req.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	id := volume.LibraryID(req.GetName())
	klog.FromContext(ctx).V(2).Info("Promised the library to a claim", "volume-id", id)
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		// CapacityBytes 0: there is none.
		VolumeId: id, VolumeContext: params.Attributes(), AccessibleTopology: []*csi.Topology{Topology(c.node.Name())},
	}}, nil
}

// checkLibraryCapability refuses everything but reading files.
func checkLibraryCapability(c capability) error {
	if c.block || !c.readOnly {
		return fmt.Errorf("%w: a volume of this StorageClass shows the library and can only be read; set accessModes: "+
			"[ReadOnlyMany] and volumeMode: Filesystem in the claim, and use another class to store data",
			volume.ErrInvalid)
	}
	return nil
}

func libraryCapacity() *csi.GetCapacityResponse {
	return &csi.GetCapacityResponse{
		AvailableCapacity: libraryRoom, MaximumVolumeSize: wrapperspb.Int64(libraryRoom),
		MinimumVolumeSize: wrapperspb.Int64(1),
	}
}

// publishLibrary shows the library at a target. An inline volume is read-only by its own flag, a claim by its access
// mode.
func (s *Node) publishLibrary(ctx context.Context, req *csi.NodePublishVolumeRequest, c capability,
	attributes volume.Attributes) error {
	if !attributes.Ephemeral {
		if err := checkLibraryCapability(c); err != nil {
			return err
		}
	}
	return s.node.PublishLibrary(ctx, req.GetTargetPath(), req.GetReadonly() || c.readOnly, attributes.Pod)
}
