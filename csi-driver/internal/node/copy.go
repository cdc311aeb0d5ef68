// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// controlDir is the directory of a volume's root that the library's logs are in.
const controlDir = ".splitfs"

// copyDevice makes the device of rec out of that of source, as it is at one moment. Nobody can use rec yet. Until it is
// cut it can be made anew; from then on source is nil after an interruption, and not needed. released is called when
// the original is not needed any more.
func (n *Node) copyDevice(ctx context.Context, store *volume.Store, source, rec *volume.Record, released func()) error {
	if !rec.Cut {
		c, err := n.newCopying(ctx, store, source, rec)
		if err != nil {
			return err
		}
		if err := n.cutTogether(ctx, []*copying{c}); err != nil {
			return err
		}
		rec.Cut, rec.Job = true, nil
		if err := store.Put(rec); err != nil {
			return err
		}
	}
	if released != nil {
		released()
	}
	return n.finishCut(ctx, store, rec)
}

// finishCut makes a copy that is cut one that can be used: with storage of its own, and settled.
func (n *Node) finishCut(ctx context.Context, store *volume.Store, rec *volume.Record) error {
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	if err := n.unshare(ctx, manager, store, rec); err != nil {
		return err
	}
	if !rec.Formatted {
		return nil // raw, or nothing is on it yet
	}
	return n.settle(ctx, manager, rec)
}

// taken is the moment of a snapshot; a clone has none.
func taken(rec *volume.Record, now time.Time) time.Time {
	if !volume.ValidSnapshotID(rec.ID) {
		return time.Time{}
	}
	return now.UTC()
}

// unshare gives a copy that was shared storage of its own. An interrupted call is gone on with.
func (n *Node) unshare(ctx context.Context, manager device.Manager, store *volume.Store, rec *volume.Record) error {
	copier, ok := manager.(device.Copier)
	if !ok {
		return nil
	}
	if device.IsThin(manager) { // it has the size of its original so far
		if err := manager.Grow(ctx, rec.ID, rec.DeviceSize); err != nil {
			return err
		}
	}
	j, err := n.beginJob(store, rec, volume.JobUnshare, rec.DeviceSize)
	if err != nil {
		return err
	}
	err = copier.Unshare(ctx, rec.ID, rec.Job.Done, func(at int64) error { return j.at(ctx, at, max(at, rec.DeviceSize)) })
	if err == nil {
		j.end(ctx)
	}
	return err
}

// content returns where the bytes of a volume are: a file, or its device, which stays attached only if it is used
// otherwise.
func (n *Node) content(ctx context.Context, manager device.Manager,
	rec *volume.Record) (path string, let func() error, err error) {
	if filed, ok := manager.(device.Filed); ok {
		return filed.File(rec.ID), func() error { return nil }, nil
	}
	path, err = manager.Attach(ctx, rec.ID)
	if err != nil {
		return "", nil, err
	}
	return path, func() error {
		if rec.Staged != nil {
			return nil
		}
		cleanup, cancel := detached(ctx)
		defer cancel()
		return manager.Detach(cleanup, rec.ID)
	}, nil
}

// refuseRawInUse: nobody but its user can tell when what is on a raw block volume is whole.
func refuseRawInUse(rec *volume.Record) error {
	if rec.Block && len(rec.Published) > 0 {
		return fmt.Errorf("volume %s: %w: it is a raw block volume in use, and nobody but its user can tell when what is "+
			"on it is whole; stop its pods first", rec.ID, volume.ErrPrecondition)
	}
	return nil
}

// clearHalfMade takes away what an interrupted copyDevice left.
func (n *Node) clearHalfMade(ctx context.Context, manager device.Manager, id string) error {
	if err := n.mounter.Cleanup(n.settlePath(id)); err != nil {
		return err
	}
	return manager.Delete(ctx, id)
}

func (n *Node) settlePath(id string) string { return filepath.Join(n.config.StateDir, settleDir, id) }

// settleDir is below the state directory, where nobody but us looks.
const settleDir = "settle"

// thaw lets volumes' users go on: all of them before anything is written down.
func (n *Node) thaw(list ...*volume.Record) error {
	errs := make([]error, len(list))
	for i, rec := range list {
		errs[i] = thawMounted(rec)
	}
	for i, rec := range list {
		if errs[i] == nil {
			rec.Frozen = false
			errs[i] = n.store.PutReleasing(rec)
		}
	}
	return errors.Join(errs...)
}

func thawMounted(rec *volume.Record) error {
	if rec.Staged == nil {
		return nil
	}
	mounted, err := mounts.At(rec.Staged.Path)
	if err != nil || mounted == nil {
		return err
	}
	return filesystem.Thaw(rec.Staged.Path)
}

// settle makes a copy of a file system in use one that was never in use: journal and operation logs are replayed now,
// while it is known that the memory they were written in was not lost, and it gets an identity and the size of its own.
func (n *Node) settle(ctx context.Context, manager device.Manager, rec *volume.Record) error {
	dev, err := manager.Attach(ctx, rec.ID)
	if err != nil {
		return err
	}
	if err := filesystem.Check(ctx, dev, rec.FSType); err != nil {
		return err
	}
	root := n.settlePath(rec.ID)
	if err := n.mounter.Device(ctx, dev, root, rec.FSType, filesystem.CopyOptions(rec.FSType)); err != nil {
		return err
	}
	if err := n.settleMounted(ctx, dev, root, rec); err != nil {
		return err
	}
	if err := n.mounter.Cleanup(root); err != nil {
		return err
	}
	if err := filesystem.NewIdentity(ctx, dev, rec.FSType); err != nil {
		return err
	}
	if rec.FSType == volume.Ext4 {
		if err := filesystem.GrowUnmounted(ctx, dev); err != nil {
			return err
		}
	}
	return manager.Detach(ctx, rec.ID)
}

func (n *Node) settleMounted(ctx context.Context, dev, root string, rec *volume.Record) error {
	_, err := os.Lstat(filepath.Join(root, controlDir))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was formatted and never prepared
	case err != nil:
		return fmt.Errorf("control directory of the copy: %w", err)
	default:
		result, err := n.config.CLI.RecoverCopy(ctx, root)
		if err != nil {
			return err
		}
		rec.Recovery = result
		klog.FromContext(ctx).V(2).Info("Recovered a copy", "volume-id", rec.ID, "replayed", result.Replayed,
			"quarantined", result.Quarantined)
	}
	if rec.FSType == volume.XFS { // to the size of its device, if that is larger than its original's
		return filesystem.Grow(ctx, dev, root, rec.FSType)
	}
	return nil
}

// resumeShared tells the managers what copies that are not finished may share with their originals.
func (n *Node) resumeShared(ctx context.Context) error {
	var errs []error
	for _, store := range []*volume.Store{n.store, n.snapshots} {
		records, err := store.List()
		errs = append(errs, err)
		for _, rec := range records {
			if !mayShare(rec) {
				continue
			}
			manager, err := n.config.Managers.Of(rec)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if copier, ok := manager.(device.Copier); ok {
				var done int64
				if rec.Job != nil {
					done = rec.Job.Done
				}
				errs = append(errs, copier.Resume(ctx, rec.ID, done, rec.DeviceSize))
			}
		}
	}
	return errors.Join(errs...)
}

// mayShare says whether a device may share storage with another one. A copy is cut before its record says so. One that
// is to be deleted shares until it is.
func mayShare(rec *volume.Record) bool {
	return rec.Source != nil && !rec.Erase.Wanted() &&
		(rec.Phase == volume.PhaseCreating || rec.Phase == volume.PhaseDeleting) &&
		(rec.Job == nil || rec.Job.Kind != volume.JobCopy)
}

// resumeCopies lets go what a process that died had frozen, and unmounts what it had half made.
func (n *Node) resumeCopies(ctx context.Context, records []*volume.Record) error {
	var errs []error
	for _, rec := range records {
		if rec.Frozen {
			klog.FromContext(ctx).Info("Thawing a volume that was being copied", "volume-id", rec.ID)
			errs = append(errs, n.thaw(rec))
		}
	}
	entries, err := os.ReadDir(filepath.Join(n.config.StateDir, settleDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("look for copies that were being made: %w", err))
	}
	for _, e := range entries {
		errs = append(errs, n.mounter.Cleanup(n.settlePath(e.Name())))
	}
	return errors.Join(errs...)
}
