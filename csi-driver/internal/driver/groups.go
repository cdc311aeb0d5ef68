// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// groupKeys are what csi-snapshotter adds to the parameters of a VolumeGroupSnapshotClass (--extra-create-metadata).
// The class has none of its own.
var groupKeys = []string{
	"csi.storage.k8s.io/volumegroupsnapshot/name", "csi.storage.k8s.io/volumegroupsnapshot/namespace",
	"csi.storage.k8s.io/volumegroupsnapshotcontent/name",
}

// maxGroup is how many volumes a group can have: all of them wait while the last one is cut.
const maxGroup = 64

// GroupController is the CSI GroupController service of one node.
type GroupController struct {
	csi.UnimplementedGroupControllerServer
	node  *node.Node
	locks *volume.Locks
	jobs  *Jobs
}

// NewGroupController returns the GroupController service of a node. It shares its locks and jobs with the others.
func NewGroupController(n *node.Node, locks *volume.Locks, jobs *Jobs) *GroupController {
	return &GroupController{node: n, locks: locks, jobs: jobs}
}

// GroupControllerGetCapabilities implements csi.GroupControllerServer.
func (*GroupController) GroupControllerGetCapabilities(context.Context,
	*csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// manyLocks are the locks of a group, of its snapshots, and of its volumes, to which nothing else may happen until the
// snapshots are cut.
type manyLocks struct {
	locks          *volume.Locks
	releaseSources func()
}

// take takes all or none: nobody waits for one while it has others. The release it returns releases what is held then.
func (m *manyLocks) take(own, sources []string) (release func(), err error) {
	m.releaseSources = func() {}
	releaseOwn, err := m.all(own, "group snapshot")
	if err != nil {
		return nil, err
	}
	held, err := m.all(sources, "snapshot")
	if err != nil {
		releaseOwn()
		return nil, err
	}
	m.releaseSources = sync.OnceFunc(held)
	return func() { m.releaseSources(); releaseOwn() }, nil
}

func (m *manyLocks) all(ids []string, what string) (release func(), err error) {
	var held []func()
	release = func() {
		for _, r := range held {
			r()
		}
	}
	for _, id := range ids {
		r, err := m.locks.TryLock(id, what)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, r)
	}
	return release, nil
}

// CreateVolumeGroupSnapshot implements csi.GroupControllerServer.
func (c *GroupController) CreateVolumeGroupSnapshot(ctx context.Context,
	req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := checkGroupRequest(req); err != nil {
		return nil, StatusOf(err)
	}
	name := req.GetName()
	id := volume.GroupID(name, c.node.Name())
	// A volume that is named twice is one.
	sources := slices.Compact(slices.Sorted(slices.Values(req.GetSourceVolumeIds())))
	own := []string{id}
	for _, source := range sources {
		own = append(own, c.node.GroupMemberID(name, source))
	}
	many := &manyLocks{locks: c.locks}
	lock := func() (func(), error) { return many.take(own, sources) }
	var made []*volume.Record
	ended, err := c.jobs.do(ctx, id, lock, func(ctx context.Context) (err error) {
		made, err = c.node.CreateGroupSnapshot(ctx, name, sources, func() { many.releaseSources() })
		return err
	})
	if err != nil {
		return nil, StatusOf(err)
	}
	if !ended || made == nil {
		// The work goes on, or another call began it. Until all are cut the group is of no moment yet.
		if made, err = c.node.GroupSnapshot(id, own[1:]); err != nil {
			return nil, StatusOf(stillAtWork(c.node, id))
		}
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: groupOf(id, made)}, nil
}

func checkGroupRequest(req *csi.CreateVolumeGroupSnapshotRequest) error {
	if err := volume.CheckName("group snapshot", req.GetName()); err != nil {
		return err
	}
	switch sources := req.GetSourceVolumeIds(); {
	case len(sources) == 0:
		return missing("source volume IDs")
	case slices.Contains(sources, ""):
		return missing("ID of one of the source volumes")
	case len(sources) > maxGroup:
		return fmt.Errorf("%w: the group has %d volumes, at most %d are allowed", volume.ErrInvalid, len(sources), maxGroup)
	}
	for key := range req.GetParameters() {
		if !slices.Contains(groupKeys, key) {
			return fmt.Errorf("%w: unknown VolumeGroupSnapshotClass parameter %q; there are none", volume.ErrInvalid, key)
		}
	}
	return nil
}

func groupOf(id string, records []*volume.Record) *csi.VolumeGroupSnapshot {
	group := &csi.VolumeGroupSnapshot{GroupSnapshotId: id, ReadyToUse: true}
	for _, rec := range records {
		snapshot := snapshotOf(rec)
		group.Snapshots = append(group.Snapshots, snapshot)
		group.ReadyToUse = group.ReadyToUse && snapshot.GetReadyToUse()
		group.CreationTime = timestamppb.New(rec.Taken) // the same of all
	}
	return group
}

// DeleteVolumeGroupSnapshot implements csi.GroupControllerServer.
func (c *GroupController) DeleteVolumeGroupSnapshot(ctx context.Context,
	req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id := req.GetGroupSnapshotId()
	if id == "" {
		return nil, StatusOf(missing("group snapshot ID"))
	}
	if err := c.jobs.cancel(ctx, id); err != nil {
		return nil, StatusOf(err)
	}
	members, err := c.node.GroupMembers(id)
	if err != nil {
		return nil, StatusOf(err)
	}
	for _, member := range members {
		// one that the start of the service went on with
		if err := c.jobs.cancel(ctx, member); err != nil {
			return nil, StatusOf(err)
		}
	}
	release, err := (&manyLocks{locks: c.locks}).take(append([]string{id}, members...), nil)
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if err := c.node.DeleteGroupSnapshot(ctx, id, req.GetSnapshotIds()); err != nil {
		return nil, StatusOf(err)
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot implements csi.GroupControllerServer.
func (c *GroupController) GetVolumeGroupSnapshot(_ context.Context,
	req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id := req.GetGroupSnapshotId()
	if id == "" {
		return nil, StatusOf(missing("group snapshot ID"))
	}
	records, err := c.node.GroupSnapshot(id, req.GetSnapshotIds())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupOf(id, records)}, nil
}
