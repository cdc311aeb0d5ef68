// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// CreateSnapshot makes a snapshot of a volume, or finds the one that an earlier call for the same name made. Like a volume it is in
// its phase "creating" until it is whole.
func (n *Node) CreateSnapshot(ctx context.Context, name, sourceID string) (*volume.Record, error) {
	id := volume.SnapshotID(name, n.config.Name)
	rec, err := n.snapshots.Get(id)
	switch {
	case err == nil:
		if rec.Source == nil || rec.Source.VolumeID != sourceID {
			return nil, fmt.Errorf("snapshot %q %w: it is one of another volume", name, volume.ErrExists)
		}
		if rec.Phase == volume.PhaseReady {
			return rec, nil
		}
		if rec.Phase == volume.PhaseDeleting {
			return nil, fmt.Errorf("snapshot %s: %w: it is being deleted", id, volume.ErrBusy)
		}
		if rec.Phase == volume.PhaseErasing {
			return nil, beingErased("snapshot " + id)
		}
		if mustErase(rec) {
			return nil, errors.Join(n.beginErasing(ctx, n.snapshots, rec), beingErased("an interrupted copy, snapshot "+id))
		}
	case !errors.Is(err, volume.ErrNotFound):
		return nil, err
	}
	source, err := n.get(sourceID)
	if err != nil {
		return nil, err
	}
	manager, err := n.config.Managers.Get(source.Device)
	if err != nil {
		return nil, err
	}
	rec = &volume.Record{
		ID: id, Name: name, Phase: volume.PhaseCreating, Source: &volume.Source{VolumeID: sourceID}, Taken: time.Now().UTC(),
		Mode: source.Mode, Erase: source.Erase, Unserved: source.Unserved, Durability: source.Durability, Device: source.Device, FSType: source.FSType, Block: source.Block, PVC: source.PVC,
		Size: source.Size, DeviceSize: source.DeviceSize, Overhead: source.Overhead, Formatted: source.Formatted, Cleared: source.Cleared, Measured: source.Measured,
	}
	if err := n.snapshots.Put(rec); err != nil {
		return nil, err
	}
	if err := n.copyDevice(ctx, source, rec); err != nil {
		// Nobody has the snapshot's ID yet, so nobody would ever delete it.
		cleanup, cancel := detached(ctx)
		defer cancel()
		err = fmt.Errorf("snapshot volume %s: %w", sourceID, err)
		if mustErase(rec) {
			return nil, errors.Join(err, n.beginErasing(cleanup, n.snapshots, rec))
		}
		return nil, errors.Join(err, n.clearHalfMade(cleanup, manager, id), n.snapshots.Remove(id))
	}
	rec.Phase = volume.PhaseReady
	if err := n.snapshots.Put(rec); err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("Made a snapshot", "snapshot-id", id, "volume-id", sourceID, "device-size", rec.DeviceSize)
	return rec, nil
}

// DeleteSnapshot removes a snapshot, or leaves it to the eraser. One that is not known is deleted already; one of another node is refused.
func (n *Node) DeleteSnapshot(ctx context.Context, id string) error {
	if !volume.ValidSnapshotID(id) {
		return nil
	}
	if !volume.SnapshotOnNode(id, n.config.Name) {
		return fmt.Errorf("snapshot %s: %w: it is on another node than %s, which has to be asked", id, volume.ErrPrecondition, n.config.Name)
	}
	rec, err := n.snapshots.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		return n.deleteLeftover(ctx, id)
	}
	if err != nil {
		return err
	}
	if mustErase(rec) {
		return n.beginErasing(ctx, n.snapshots, rec)
	}
	manager, err := n.config.Managers.Get(rec.Device)
	if err != nil {
		return err
	}
	rec.Phase = volume.PhaseDeleting
	if err := n.snapshots.Put(rec); err != nil {
		return err
	}
	if err := n.clearHalfMade(ctx, manager, id); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	if err := n.snapshots.Remove(id); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Deleted a snapshot", "snapshot-id", id)
	return nil
}

// Snapshots returns the snapshots of this node that are whole, by ID; sourceID and id choose, "" is any.
func (n *Node) Snapshots(sourceID, id string) ([]*volume.Record, error) {
	all, err := n.snapshots.List()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r *volume.Record) bool {
		return r.Phase != volume.PhaseReady || id != "" && r.ID != id || sourceID != "" && r.Source.VolumeID != sourceID
	})
	slices.SortFunc(all, func(a, b *volume.Record) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// source returns what a new volume is to be a copy of. One of another node is no final error: the scheduler chooses again.
func (n *Node) source(s *volume.Source) (*volume.Record, error) {
	elsewhere := func(what, id string) error {
		return fmt.Errorf("%w: %s %s is not on node %s, and a copy can be made only where its original is", volume.ErrExhausted, what, id, n.config.Name)
	}
	if s.SnapshotID != "" {
		if volume.ValidSnapshotID(s.SnapshotID) && !volume.SnapshotOnNode(s.SnapshotID, n.config.Name) {
			return nil, elsewhere("snapshot", s.SnapshotID)
		}
		rec, err := n.snapshots.Get(s.SnapshotID)
		if err == nil && rec.Phase != volume.PhaseReady {
			err = fmt.Errorf("snapshot %s: %w: it is in phase %q", rec.ID, volume.ErrPrecondition, rec.Phase)
		}
		return rec, err
	}
	rec, err := n.get(s.VolumeID)
	if errors.Is(err, volume.ErrNotFound) && volume.ValidID(s.VolumeID) {
		return nil, elsewhere("volume", s.VolumeID)
	}
	return rec, err
}

// planCopy completes the record of a new volume that is to be a copy.
func (n *Node) planCopy(rec *volume.Record, req CreateRequest) error {
	source, err := n.source(req.Source)
	if err != nil {
		return err
	}
	refuse := func(what string, have, want any) error {
		return fmt.Errorf("%w: the original, %s, has the %s %v, the copy is to have %v; a copy has what its original has: use a StorageClass that says so", volume.ErrInvalid, source.ID, what, have, want)
	}
	switch {
	case source.Device != rec.Device:
		return refuse("device", source.Device, rec.Device)
	case source.Block != rec.Block:
		return refuse("volume mode", volumeMode(source.Block), volumeMode(rec.Block))
	case source.FSType != rec.FSType:
		return refuse("file system type", source.FSType, rec.FSType)
	case rec.Erase.WeakerThan(source.Erase):
		return refuse("erase policy", source.Erase.OrNone(), rec.Erase.OrNone())
	}
	if req.Required == 0 || rec.Size < source.Size {
		if rec.Size = source.Size; req.Limit > 0 && rec.Size > req.Limit {
			return fmt.Errorf("%w: the original, %s, holds %d bytes, the copy must not hold more than %d", volume.ErrOutOfRange, source.ID, source.Size, req.Limit)
		}
	}
	rec.Source, rec.Formatted, rec.Cleared = req.Source, source.Formatted, source.Cleared
	rec.Overhead = max(rec.Overhead, source.Overhead)
	rec.DeviceSize = max(deviceSize(rec, rec.Size), source.DeviceSize)
	if source.Measured > 0 {
		// Its file system is grown by as much as a new one would need, and has room for the difference.
		rec.Measured = rec.Size
	}
	return nil
}

// resumeSnapshots finishes deletions that were interrupted. A snapshot that was being made is made anew by the call that is
// repeated.
func (n *Node) resumeSnapshots(ctx context.Context) error {
	all, err := n.snapshots.List()
	errs := []error{err}
	for _, rec := range all {
		if rec.Phase == volume.PhaseDeleting {
			errs = append(errs, n.DeleteSnapshot(ctx, rec.ID))
		}
	}
	return errors.Join(errs...)
}
