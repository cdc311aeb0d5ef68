// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// Controller is the CSI Controller service of one node, for the provisioner that runs beside it.
type Controller struct {
	csi.UnimplementedControllerServer
	node  *node.Node
	locks *volume.Locks
	jobs  *Jobs
}

// NewController returns the Controller service of a node. It shares its locks and jobs with the Node service.
func NewController(n *node.Node, locks *volume.Locks, jobs *Jobs) *Controller {
	return &Controller{node: n, locks: locks, jobs: jobs}
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (*Controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return ControllerCapabilities(
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	), nil
}

// ControllerCapabilities builds the answer of ControllerGetCapabilities.
func ControllerCapabilities(list ...csi.ControllerServiceCapability_RPC_Type) *csi.ControllerGetCapabilitiesResponse {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range list {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp
}

// CreateVolume implements csi.ControllerServer.
func (c *Controller) CreateVolume(ctx context.Context,
	req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	create, err := c.createRequest(req)
	if err != nil {
		return nil, StatusOf(err)
	}
	if create.Params.Library {
		resp, err := c.createLibrary(ctx, req, create.Params)
		return resp, StatusOf(err)
	}
	rec, err := c.create(ctx, create)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           rec.ID,
		CapacityBytes:      rec.Size,
		VolumeContext:      create.Params.Attributes(),
		ContentSource:      req.GetVolumeContentSource(),
		AccessibleTopology: []*csi.Topology{Topology(c.node.Name())},
	}}, nil
}

// create makes a volume. A copy may take longer than the call.
func (c *Controller) create(ctx context.Context, req node.CreateRequest) (*volume.Record, error) {
	id := volume.IDFromName(req.Name)
	var made *volume.Record
	both := &bothLocks{locks: c.locks}
	req.Released = func() { both.releaseSource() }
	lock := func() (func(), error) { return both.take(id, "create", sourceID(req.Source), "copy") }
	ended, err := c.jobs.do(ctx, id, lock, func(ctx context.Context) (err error) {
		made, err = c.node.Create(ctx, req)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !ended:
		return nil, stillAtWork(c.node, id)
	case made == nil: // another call began it, and may have asked for something else
		return c.create(ctx, req)
	}
	return made, nil
}

func (c *Controller) createRequest(req *csi.CreateVolumeRequest) (node.CreateRequest, error) {
	out := node.CreateRequest{
		Name:     req.GetName(),
		Required: req.GetCapacityRange().GetRequiredBytes(),
		Limit:    req.GetCapacityRange().GetLimitBytes(),
	}
	if err := volume.CheckName("volume", out.Name); err != nil {
		return out, err
	}
	capability, err := parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return out, err
	}
	out.Block, out.MountFlags = capability.block, capability.flags
	if out.Params, err = volume.ParseParams(req.GetParameters()); err != nil {
		return out, err
	}
	changes, err := volume.ParseChanges(req.GetMutableParameters())
	if err != nil {
		return out, err
	}
	if out.Params.Library {
		if changes != (volume.Changes{}) {
			return out, fmt.Errorf(
				"%w: a volume of this StorageClass shows the library and has no mode; remove "+
					"volumeAttributesClassName from the claim", volume.ErrInvalid)
		}
		return out, nil
	}
	out.Params = out.Params.With(changes)
	if out.FSType, err = chooseFSType(capability, out.Params.FSType); err != nil {
		return out, err
	}
	if out.Source, err = contentSource(req.GetVolumeContentSource()); err != nil {
		return out, err
	}
	return out, c.checkTopology(req.GetAccessibilityRequirements())
}

// checkTopology refuses a volume that has to be on another node. ResourceExhausted lets the scheduler choose again.
func (c *Controller) checkTopology(req *csi.TopologyRequirement) error {
	if len(req.GetRequisite()) == 0 && len(req.GetPreferred()) == 0 {
		return nil
	}
	for _, list := range [][]*csi.Topology{req.GetRequisite(), req.GetPreferred()} {
		for _, t := range list {
			if t.GetSegments()[contract.TopologyKey] == c.node.Name() {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: this is node %s, and the volume is to be reachable from other nodes only", volume.ErrExhausted,
		c.node.Name())
}

// Topology of volumes on a node.
func Topology(nodeName string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{contract.TopologyKey: nodeName}}
}

// DeleteVolume implements csi.ControllerServer.
func (c *Controller) DeleteVolume(ctx context.Context,
	req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, StatusOf(missing("volume ID"))
	}
	if err := c.jobs.cancel(ctx, id); err != nil {
		return nil, StatusOf(err)
	}
	release, err := c.locks.TryLock(id, "delete")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if err := c.node.Delete(ctx, id); err != nil {
		return nil, StatusOf(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(_ context.Context,
	req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, StatusOf(missing("volume ID"))
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, StatusOf(missing("volume capabilities"))
	}
	rec, err := c.node.Volume(req.GetVolumeId())
	if err != nil {
		return nil, StatusOf(err)
	}
	refuse := func(err error) (*csi.ValidateVolumeCapabilitiesResponse, error) {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	capability, err := parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return refuse(err)
	}
	if err := c.node.CheckUse(rec, capability.block, capability.fsType, capability.flags); err != nil {
		return refuse(err)
	}
	if len(req.GetParameters()) > 0 {
		if _, err := volume.ParseParams(req.GetParameters()); err != nil {
			return refuse(err)
		}
	}
	if _, err := volume.ParseAttributes(req.GetVolumeContext()); err != nil {
		return refuse(err)
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters: req.GetParameters(),
	}}, nil
}

// GetCapacity implements csi.ControllerServer.
func (c *Controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if t := req.GetAccessibleTopology(); t != nil && t.GetSegments()[contract.TopologyKey] != c.node.Name() {
		return &csi.GetCapacityResponse{}, nil // another node's business: nothing here
	}
	params, err := volume.ParseParams(req.GetParameters())
	if err != nil {
		// A StorageClass that is wrong has the capacity of one that says nothing. An error here would leave the class without
		// CSIStorageCapacity, and the scheduler would hold the pod back for lack of space; so CreateVolume is called, and its
		// error, which names the parameter, reaches the claim's owner as an event.
		klog.FromContext(ctx).V(4).Info("Capacity of a StorageClass with a wrong parameter", "problem", err)
		if params, err = volume.ParseParams(nil); err != nil {
			return nil, StatusOf(err)
		}
	}
	if params.Library {
		return libraryCapacity(), nil
	}
	block := false
	if len(req.GetVolumeCapabilities()) > 0 {
		capability, err := parseCapabilities(req.GetVolumeCapabilities())
		if err != nil {
			return nil, StatusOf(err)
		}
		if params.FSType, err = chooseFSType(capability, params.FSType); err != nil {
			return nil, StatusOf(err)
		}
		block = capability.block
	}
	capacity, err := c.node.Capacity(ctx, params, block)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &csi.GetCapacityResponse{
		// The scheduler goes by the largest volume, which counts pool and logs; an expansion, by this.
		AvailableCapacity: capacity.Growth,
		MaximumVolumeSize: wrapperspb.Int64(capacity.Largest),
		MinimumVolumeSize: wrapperspb.Int64(volume.MiB),
	}, nil
}

// ControllerExpandVolume implements csi.ControllerServer. The work is the node's, while the volume is in use.
func (c *Controller) ControllerExpandVolume(ctx context.Context,
	req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, StatusOf(missing("volume ID"))
	}
	if req.GetCapacityRange() == nil {
		return nil, StatusOf(missing("capacity range"))
	}
	release, err := c.locks.TryLock(id, "check expansion")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	size, err := c.node.CheckExpand(ctx, id, req.GetCapacityRange().GetRequiredBytes(),
		req.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}
