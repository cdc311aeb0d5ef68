// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// snapshotKeys are what csi-snapshotter adds to the parameters of a VolumeSnapshotClass (--extra-create-metadata). The
// class has none of its own.
var snapshotKeys = []string{
	"csi.storage.k8s.io/volumesnapshot/name", "csi.storage.k8s.io/volumesnapshot/namespace",
	"csi.storage.k8s.io/volumesnapshotcontent/name",
}

// contentSource reads what a new volume is to be a copy of.
func contentSource(s *csi.VolumeContentSource) (*volume.Source, error) {
	switch {
	case s == nil:
		return nil, nil
	case s.GetSnapshot() != nil:
		if id := s.GetSnapshot().GetSnapshotId(); id != "" {
			return &volume.Source{SnapshotID: id}, nil
		}
	case s.GetVolume() != nil:
		if id := s.GetVolume().GetVolumeId(); id != "" {
			return &volume.Source{VolumeID: id}, nil
		}
	}
	return nil, fmt.Errorf("%w: the volume content source names neither a snapshot nor a volume", volume.ErrInvalid)
}

// bothLocks are the locks of a copy and of its original, to which nothing else may happen until the copy is cut.
type bothLocks struct {
	locks         *volume.Locks
	releaseSource func()
}

// take takes both; source "" is none. The release it returns releases what is held then.
func (b *bothLocks) take(id, what, source, whatSource string) (release func(), err error) {
	b.releaseSource = func() {}
	releaseCopy, err := b.locks.TryLock(id, what)
	if err != nil {
		return nil, err
	}
	if source != "" {
		held, err := b.locks.TryLock(source, whatSource)
		if err != nil {
			releaseCopy()
			return nil, err
		}
		b.releaseSource = sync.OnceFunc(held)
	}
	return func() { b.releaseSource(); releaseCopy() }, nil
}

// sourceID is what a copy is made of; "": it is none.
func sourceID(s *volume.Source) string {
	if s == nil {
		return ""
	}
	return cmp.Or(s.SnapshotID, s.VolumeID)
}

// CreateSnapshot implements csi.ControllerServer.
func (c *Controller) CreateSnapshot(ctx context.Context,
	req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	name, source := req.GetName(), req.GetSourceVolumeId()
	if err := volume.CheckName("snapshot", name); err != nil {
		return nil, StatusOf(err)
	}
	if source == "" {
		return nil, StatusOf(missing("source volume ID"))
	}
	for key := range req.GetParameters() {
		if !slices.Contains(snapshotKeys, key) {
			return nil, StatusOf(fmt.Errorf("%w: unknown VolumeSnapshotClass parameter %q; there are none", volume.ErrInvalid,
				key))
		}
	}
	id := volume.SnapshotID(name, c.node.Name())
	var made *volume.Record
	both := &bothLocks{locks: c.locks}
	lock := func() (func(), error) { return both.take(id, "create", source, "snapshot") }
	ended, err := c.jobs.do(ctx, id, lock, func(ctx context.Context) (err error) {
		made, err = c.node.CreateSnapshot(ctx, name, source, func() { both.releaseSource() })
		return err
	})
	if err != nil {
		return nil, StatusOf(err)
	}
	if ended && made != nil {
		return &csi.CreateSnapshotResponse{Snapshot: snapshotOf(made)}, nil
	}
	// The work goes on, or another call began it. Until it is cut the snapshot is of no moment yet, and whoever stopped an
	// application for it has to wait.
	rec := c.node.Working(id)
	if rec == nil || rec.Phase != volume.PhaseReady && !rec.Cut {
		return nil, StatusOf(stillAtWork(c.node, id))
	}
	if rec.Source == nil || rec.Source.VolumeID != source {
		return nil, StatusOf(fmt.Errorf("snapshot %q %w: it is one of another volume", name, volume.ErrExists))
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotOf(rec)}, nil
}

func snapshotOf(rec *volume.Record) *csi.Snapshot {
	group := ""
	if rec.Group != nil {
		group = rec.Group.ID
	}
	return &csi.Snapshot{
		GroupSnapshotId: group,
		SnapshotId:      rec.ID, SourceVolumeId: rec.Source.VolumeID, SizeBytes: rec.Size,
		CreationTime: timestamppb.New(rec.Taken), ReadyToUse: rec.Phase == volume.PhaseReady,
	}
}

// DeleteSnapshot implements csi.ControllerServer.
func (c *Controller) DeleteSnapshot(ctx context.Context,
	req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id := req.GetSnapshotId()
	if id == "" {
		return nil, StatusOf(missing("snapshot ID"))
	}
	if err := c.jobs.cancel(ctx, id); err != nil {
		return nil, StatusOf(err)
	}
	release, err := c.locks.TryLock(id, "delete")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if err := c.node.DeleteSnapshot(ctx, id); err != nil {
		return nil, StatusOf(err)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot implements csi.ControllerServer.
func (c *Controller) GetSnapshot(_ context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	id := req.GetSnapshotId()
	if id == "" {
		return nil, StatusOf(missing("snapshot ID"))
	}
	found, err := c.node.Snapshots("", id)
	if err != nil {
		return nil, StatusOf(err)
	}
	if len(found) == 0 {
		return nil, StatusOf(fmt.Errorf("snapshot %q: %w on this node", id, volume.ErrNotFound))
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshotOf(found[0])}, nil
}

// ListSnapshots implements csi.ControllerServer. A page begins after the ID that is its token.
func (c *Controller) ListSnapshots(_ context.Context,
	req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, StatusOf(fmt.Errorf("%w: at most %d entries are asked for", volume.ErrInvalid, req.GetMaxEntries()))
	}
	token := req.GetStartingToken()
	if token != "" && !volume.ValidSnapshotID(token) {
		return nil, status.Errorf(codes.Aborted, "the starting token %q is none of ours; list from the beginning", token)
	}
	all, err := c.node.Snapshots(req.GetSourceVolumeId(), req.GetSnapshotId())
	if err != nil {
		return nil, StatusOf(err)
	}
	start, found := slices.BinarySearchFunc(all, token, func(r *volume.Record, id string) int {
		return strings.Compare(r.ID, id)
	})
	if found {
		start++
	}
	all = all[start:]
	resp := &csi.ListSnapshotsResponse{}
	if limit := int(req.GetMaxEntries()); limit > 0 && limit < len(all) {
		all = all[:limit]
		resp.NextToken = all[limit-1].ID
	}
	for _, rec := range all {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotOf(rec)})
	}
	return resp, nil
}
