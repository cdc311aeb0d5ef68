// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// CreateSnapshot makes a snapshot of a volume, or finds the one that an earlier call for the same name made. Like a
// volume it is in its phase "creating" until it is whole; one that an earlier call began is gone on with. released,
// which can be nil, is called when the volume is not needed any more.
func (n *Node) CreateSnapshot(ctx context.Context, name, sourceID string, released func()) (*volume.Record, error) {
	id := volume.SnapshotID(name, n.config.Name)
	rec, err := n.snapshots.Get(id)
	switch {
	case err == nil:
		if rec.Phase == volume.PhaseReady || rec.Source == nil || rec.Source.VolumeID != sourceID {
			return rec, checkSnapshotOf(rec, name, sourceID)
		}
		if err := n.beginAnew(ctx, n.snapshots, rec); err != nil {
			return nil, err
		}
	case errors.Is(err, volume.ErrNotFound):
		rec = nil
	default:
		return nil, err
	}
	var source *volume.Record
	if rec == nil || !rec.Cut {
		if source, err = n.get(sourceID); err != nil {
			return nil, n.originalGone(ctx, err, rec)
		}
	}
	if rec == nil || rec.Job == nil && !rec.Cut {
		rec = snapshotRecord(id, name, source)
		if err := n.snapshots.Put(rec); err != nil {
			return nil, err
		}
	}
	if err := n.copyDevice(ctx, n.snapshots, source, rec, released); err != nil {
		return nil, n.copyFailed(ctx, n.snapshots, rec, fmt.Errorf("snapshot volume %s: %w", sourceID, err))
	}
	rec.Phase, rec.Cut = volume.PhaseReady, false
	if err := n.snapshots.Put(rec); err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("Made a snapshot", "snapshot-id", id, "volume-id", sourceID,
		"device-size", rec.DeviceSize)
	return rec, nil
}

func snapshotRecord(id, name string, source *volume.Record) *volume.Record {
	return &volume.Record{
		ID: id, Name: name, Phase: volume.PhaseCreating, Source: &volume.Source{VolumeID: source.ID},
		Mode: source.Mode, Erase: source.Erase, Unserved: source.Unserved, Durability: source.Durability,
		Device: source.Device, Class: source.Class, Thin: source.Thin, FSType: source.FSType, Block: source.Block,
		PVC: source.PVC, Size: source.Size, DeviceSize: source.DeviceSize, Overhead: source.Overhead,
		Formatted: source.Formatted, Cleared: source.Cleared, Measured: source.Measured,
	}
}

func checkSnapshotOf(rec *volume.Record, name, sourceID string) error {
	if rec.Source == nil || rec.Source.VolumeID != sourceID {
		return fmt.Errorf("snapshot %q %w: it is one of another volume", name, volume.ErrExists)
	}
	return nil
}

// beginAnew says whether an earlier call's copy, which is not whole, can be gone on with or made anew.
func (n *Node) beginAnew(ctx context.Context, store *volume.Store, rec *volume.Record) error {
	switch {
	case rec.Phase == volume.PhaseDeleting:
		return fmt.Errorf("%s: %w: it is being deleted", rec.ID, volume.ErrBusy)
	case rec.Phase == volume.PhaseErasing:
		return beingErased(rec.ID)
	case rec.Job == nil && !rec.Cut && mustErase(rec):
		// Beginning anew would give the space of what was copied so far back as it is.
		return errors.Join(n.beginErasing(ctx, store, rec), beingErased("an interrupted copy, "+rec.ID))
	}
	return nil
}

// copyFailed takes back a copy that could not be made: nobody has its ID yet, so nobody would ever delete it. One that
// was interrupted is gone on with, and so is one that is cut, of which somebody may have been told.
func (n *Node) copyFailed(ctx context.Context, store *volume.Store, rec *volume.Record, err error) error {
	if rec.Source != nil && (ctx.Err() != nil || rec.Cut) {
		return err
	}
	cleanup, cancel := detached(ctx)
	defer cancel()
	if mustErase(rec) {
		return errors.Join(err, n.beginErasing(cleanup, store, rec))
	}
	manager, errManager := n.config.Managers.Of(rec)
	if errManager != nil {
		return errors.Join(err, errManager)
	}
	return errors.Join(err, n.clearHalfMade(cleanup, manager, rec.ID), store.Remove(rec.ID))
}

// originalGone takes back snapshots that an interrupted call had begun and not cut, when err says that what they were
// to be made of is not there any more: this call fails for good.
func (n *Node) originalGone(ctx context.Context, err error, begun ...*volume.Record) error {
	if !errors.Is(err, volume.ErrNotFound) {
		return err
	}
	for _, rec := range begun {
		if rec != nil {
			rec.Cut = false // of a group that is not whole
			err = n.copyFailed(ctx, n.snapshots, rec, err)
		}
	}
	return err
}

// DeleteSnapshot removes a snapshot, or leaves it to the eraser. One that is not known is deleted already; one of
// another node is refused, and so is one that is part of a group.
func (n *Node) DeleteSnapshot(ctx context.Context, id string) error {
	if !volume.ValidSnapshotID(id) {
		return nil
	}
	if err := n.onThisNode("snapshot", id); err != nil {
		return err
	}
	rec, err := n.snapshots.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		return n.deleteLeftover(ctx, id)
	}
	if err != nil {
		return err
	}
	if rec.Group != nil {
		return fmt.Errorf("%w: snapshot %s is part of the group %s, which is deleted as a whole", volume.ErrInvalid, id,
			rec.Group.ID)
	}
	return n.deleteSnapshot(ctx, rec)
}

// onThisNode refuses a snapshot or group of another node.
func (n *Node) onThisNode(what, id string) error {
	if volume.SnapshotOnNode(id, n.config.Name) {
		return nil
	}
	return fmt.Errorf("%s %s: %w: it is on another node than %s, which has to be asked", what, id, volume.ErrPrecondition,
		n.config.Name)
}

func (n *Node) deleteSnapshot(ctx context.Context, rec *volume.Record) error {
	id := rec.ID
	if mustErase(rec) {
		return n.beginErasing(ctx, n.snapshots, rec)
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	rec.Phase = volume.PhaseDeleting
	if err := n.snapshots.PutReleasing(rec); err != nil {
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

// Snapshots returns the snapshots of this node that are cut, whole or not yet, by ID; sourceID and id choose, "" is
// any.
func (n *Node) Snapshots(sourceID, id string) ([]*volume.Record, error) {
	all, err := n.snapshots.List()
	if err != nil && id != "" {
		err = n.unreadableFor(id)
	}
	if err != nil {
		return nil, err // a list without one would say that it is deleted
	}
	whole := wholeGroups(all)
	all = slices.DeleteFunc(all, func(r *volume.Record) bool {
		return !isCut(r) || r.Group != nil && !whole[r.Group.ID] || id != "" && r.ID != id ||
			sourceID != "" && r.Source.VolumeID != sourceID
	})
	slices.SortFunc(all, func(a, b *volume.Record) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// unreadableFor says why nothing can be said of one snapshot while the records of some cannot be read; nil: they do not
// matter for it.
func (n *Node) unreadableFor(id string) error {
	rec, err := n.snapshots.Get(id)
	if err == nil && rec.Group != nil {
		_, err = n.members(rec.Group.ID) // it is there when all of them are
	}
	return ignoreNotFound(err)
}

// source returns what a new volume is to be a copy of. One of another node is no final error: the scheduler chooses
// again.
func (n *Node) source(s *volume.Source) (*volume.Record, error) {
	elsewhere := func(what, id string) error {
		return fmt.Errorf("%w: %s %s is not on node %s, and a copy can be made only where its original is",
			volume.ErrExhausted, what, id, n.config.Name)
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

// classOf names a volume's device class. A thin volume is copied in its own pool, and no other volume is copied there.
func classOf(rec *volume.Record) string {
	class := cmp.Or(rec.Class, "of the node")
	if rec.Thin {
		class += " (thin)"
	}
	return class
}

// planCopy completes the record of a new volume that is to be a copy.
func (n *Node) planCopy(rec *volume.Record, req CreateRequest) error {
	source, err := n.source(req.Source)
	if err != nil {
		return err
	}
	refuse := func(what string, have, want any) error {
		return fmt.Errorf("%w: the original, %s, has the %s %v, the copy is to have %v; a copy has what its original has: "+
			"use a StorageClass that says so", volume.ErrInvalid, source.ID, what, have, want)
	}
	switch {
	case source.Device != rec.Device:
		return refuse("device", source.Device, rec.Device)
	case source.Thin != rec.Thin || rec.Thin && source.Class != rec.Class:
		return refuse("device class", classOf(source), classOf(rec))
	case source.Block != rec.Block:
		return refuse("volume mode", volumeMode(source.Block), volumeMode(rec.Block))
	case source.FSType != rec.FSType:
		return refuse("file system type", source.FSType, rec.FSType)
	case rec.Erase.WeakerThan(source.Erase):
		return refuse("erase policy", source.Erase.OrNone(), rec.Erase.OrNone())
	}
	if req.Required == 0 || rec.Size < source.Size {
		if rec.Size = source.Size; req.Limit > 0 && rec.Size > req.Limit {
			return fmt.Errorf("%w: the original, %s, holds %d bytes, the copy must not hold more than %d", volume.ErrOutOfRange,
				source.ID, source.Size, req.Limit)
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

// resumeSnapshots finishes deletions that were interrupted. A snapshot that was being made is gone on with by the call
// that is repeated, and by whoever asks for what is Unfinished.
func (n *Node) resumeSnapshots(ctx context.Context) error {
	all, err := n.snapshots.List()
	errs := []error{err}
	for _, rec := range all {
		if rec.Phase == volume.PhaseDeleting {
			errs = append(errs, n.deleteSnapshot(ctx, rec))
		}
	}
	return errors.Join(errs...)
}
