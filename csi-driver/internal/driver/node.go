// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Node is the CSI Node service.
type Node struct {
	csi.UnimplementedNodeServer
	node  *node.Node
	locks *volume.Locks
	jobs  *Jobs
}

// NewNode returns the Node service. It shares its locks and jobs with the Controller service of the same node.
func NewNode(n *node.Node, locks *volume.Locks, jobs *Jobs) *Node {
	return &Node{node: n, locks: locks, jobs: jobs}
}

// NodeGetCapabilities implements csi.NodeServer.
func (*Node) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// NodeGetInfo implements csi.NodeServer.
func (s *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: s.node.Name(), MaxVolumesPerNode: s.node.MaxVolumes(), AccessibleTopology: Topology(s.node.Name()),
	}, nil
}

// NodeStageVolume implements csi.NodeServer.
func (s *Node) NodeStageVolume(ctx context.Context,
	req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkIDAndPath(id, "staging target path", path); err != nil {
		return nil, StatusOf(err)
	}
	capability, err := parseCapability(req.GetVolumeCapability())
	if err != nil {
		return nil, StatusOf(err)
	}
	attributes, err := volume.ParseAttributes(req.GetVolumeContext())
	switch {
	case err != nil:
		return nil, StatusOf(err)
	case attributes.Ephemeral:
		return nil, StatusOf(fmt.Errorf("%w: inline volumes are not staged", volume.ErrInvalid))
	case attributes.Library: // there is nothing to prepare: it is mounted when it is published
		return &csi.NodeStageVolumeResponse{}, nil
	}
	stage := func(ctx context.Context) error {
		return s.node.Stage(ctx, node.StageRequest{
			ID: id, Path: path, Block: capability.block, FSType: capability.fsType, MountFlags: capability.flags,
		})
	}
	lock := func() (func(), error) { return s.locks.TryLock(id, "stage") }
	if !s.node.StagesLong(id) {
		release, err := lock()
		if err != nil {
			return nil, StatusOf(err)
		}
		defer release()
		if err := stage(ctx); err != nil {
			return nil, StatusOf(err)
		}
		return &csi.NodeStageVolumeResponse{}, nil
	}
	switch ended, err := s.jobs.do(ctx, id, lock, stage); {
	case err != nil:
		return nil, StatusOf(err)
	case !ended:
		return nil, StatusOf(stillAtWork(s.node, id))
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume implements csi.NodeServer.
func (s *Node) NodeUnstageVolume(ctx context.Context,
	req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkIDAndPath(id, "staging target path", path); err != nil {
		return nil, StatusOf(err)
	}
	if err := s.jobs.cancel(ctx, id); err != nil {
		return nil, StatusOf(err)
	}
	release, err := s.locks.TryLock(id, "unstage")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if err := s.node.Unstage(ctx, id, path); err != nil {
		return nil, StatusOf(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume implements csi.NodeServer.
func (s *Node) NodePublishVolume(ctx context.Context,
	req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkIDAndPath(id, "target path", target); err != nil {
		return nil, StatusOf(err)
	}
	capability, err := parseCapability(req.GetVolumeCapability())
	if err != nil {
		return nil, StatusOf(err)
	}
	attributes, err := volume.ParseAttributes(req.GetVolumeContext())
	if err != nil {
		return nil, StatusOf(err)
	}
	release, err := s.locks.TryLock(id, "publish")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if attributes.Library {
		err = s.publishLibrary(ctx, req, capability, attributes)
	} else if err = checkPath("staging target path", req.GetStagingTargetPath()); err == nil {
		err = s.node.Publish(ctx, node.PublishRequest{
			ID: id, StagingPath: req.GetStagingTargetPath(), Target: target, Block: capability.block,
			ReadOnly: req.GetReadonly() || capability.readOnly, Exclusive: capability.exclusive, Pod: attributes.Pod,
		})
	}
	if err != nil {
		return nil, StatusOf(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume implements csi.NodeServer.
func (s *Node) NodeUnpublishVolume(ctx context.Context,
	req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkIDAndPath(id, "target path", target); err != nil {
		return nil, StatusOf(err)
	}
	release, err := s.locks.TryLock(id, "unpublish")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if err := s.node.Unpublish(ctx, id, target); err != nil {
		return nil, StatusOf(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats implements csi.NodeServer. It takes no lock: it changes nothing, and kubelet asks often.
func (s *Node) NodeGetVolumeStats(_ context.Context,
	req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	// The path is only looked at: any that is not where the volume is mounted is "not found".
	if req.GetVolumeId() == "" || req.GetVolumePath() == "" {
		return nil, StatusOf(missing("volume ID or volume path"))
	}
	stats, err := s.node.Stats(req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, StatusOf(err)
	}
	usage := []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: stats.Total, Used: stats.Used, Available: stats.Available},
	}
	if stats.InodesTotal > 0 { // a raw block volume has none
		usage = append(usage, &csi.VolumeUsage{
			Unit: csi.VolumeUsage_INODES, Total: stats.InodesTotal, Used: stats.InodesUsed, Available: stats.InodesAvailable,
		})
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

var healthStatus = map[node.Severity]csi.VolumeHealthErrorType{
	node.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	node.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
	node.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
}

// NodeGetVolumeHealth implements csi.NodeServer.
func (s *Node) NodeGetVolumeHealth(_ context.Context,
	req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, StatusOf(missing("volume ID"))
	}
	problems, err := s.node.Health(req.GetVolumeId())
	if err != nil {
		return nil, StatusOf(err)
	}
	health := &csi.VolumeHealth{VolumeId: req.GetVolumeId()}
	for _, p := range problems {
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: healthStatus[p.Severity], Reason: p.Reason, Message: p.Message,
		})
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// NodeGetStorageHealth implements csi.NodeServer.
func (s *Node) NodeGetStorageHealth(ctx context.Context,
	_ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	resp := &csi.NodeGetStorageHealthResponse{}
	if err := s.node.Check(ctx); err != nil {
		resp.BackendHealth = append(resp.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "DeviceManagerNotUsable", Message: err.Error(),
		})
	}
	return resp, nil
}

// NodeExpandVolume implements csi.NodeServer.
func (s *Node) NodeExpandVolume(ctx context.Context,
	req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" || req.GetVolumePath() == "" {
		return nil, StatusOf(missing("volume ID or volume path"))
	}
	if c := req.GetVolumeCapability(); c != nil {
		if _, err := parseCapability(c); err != nil {
			return nil, StatusOf(err)
		}
	}
	release, err := s.locks.TryLock(id, "expand")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	size, err := s.node.Expand(ctx, id, req.GetVolumePath(), req.GetCapacityRange().GetRequiredBytes(),
		req.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

func checkIDAndPath(id, what, path string) error {
	if id == "" {
		return missing("volume ID")
	}
	return checkPath(what, path)
}

// checkPath refuses paths that no kubelet sends. We run as root: a wrong path must not get as far as a mount.
func checkPath(what, path string) error {
	if path == "" {
		return missing(what)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return fmt.Errorf("%w: the %s %q is not a clean absolute path", volume.ErrInvalid, what, path)
	}
	return nil
}
