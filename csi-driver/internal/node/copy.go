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
	manager, err := n.config.Managers.GetFor(rec.Device, rec.Durability)
	if err != nil {
		return err
	}
	if !rec.Cut {
		if err := n.cut(ctx, manager, store, source, rec); err != nil {
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
	if err := n.unshare(ctx, manager, store, rec); err != nil {
		return err
	}
	if !rec.Formatted {
		return nil // raw, or nothing is on it yet
	}
	return n.settle(ctx, manager, rec)
}

// cut makes the copy independent of what happens to the original from now on.
func (n *Node) cut(ctx context.Context, manager device.Manager, store *volume.Store, source, rec *volume.Record) error {
	if rec.Job == nil || rec.Job.Kind != volume.JobCopy {
		if err := n.clearHalfMade(ctx, manager, rec.ID); err != nil {
			return err
		}
		if copier, ok := manager.(device.Copier); ok && !rec.Erase.Wanted() {
			// What is written to storage that is shared goes elsewhere, and what was there can never be erased.
			err := n.share(ctx, copier, source, rec)
			if !errors.Is(err, device.ErrNotShared) {
				return err
			}
			klog.FromContext(ctx).V(2).Info("Storage cannot be shared, so it is copied", "from", source.ID, "to", rec.ID)
			if err := n.clearHalfMade(ctx, manager, rec.ID); err != nil {
				return err
			}
		}
	}
	return n.copyBytes(ctx, manager, store, source, rec)
}

// share makes the copy out of the original's own storage. Writers wait for a moment, however large it is.
func (n *Node) share(ctx context.Context, copier device.Copier, source, rec *volume.Record) error {
	if err := copier.Reserve(ctx, source.ID, rec.ID, rec.DeviceSize); err != nil {
		return err
	}
	return n.whileFrozen(ctx, source, func() error {
		rec.Taken = taken(rec)
		return copier.Share(ctx, source.ID, rec.ID)
	})
}

// taken is the moment of a snapshot, now; a clone has none.
func taken(rec *volume.Record) time.Time {
	if !volume.ValidSnapshotID(rec.ID) {
		return time.Time{}
	}
	return time.Now().UTC()
}

// unshare gives a copy that was shared storage of its own. An interrupted call is gone on with.
func (n *Node) unshare(ctx context.Context, manager device.Manager, store *volume.Store, rec *volume.Record) error {
	copier, ok := manager.(device.Copier)
	if !ok {
		return nil
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

// copyBytes copies from one device node to the other. What is behind the original's bytes is zero afterwards. Both stay
// attached only if they are used otherwise. The original is copied while it is used; then its writers wait while what
// they changed meanwhile is looked for and copied.
func (n *Node) copyBytes(ctx context.Context, manager device.Manager, store *volume.Store,
	source, rec *volume.Record) (err error) {
	if err := refuseRawInUse(source); err != nil {
		return err
	}
	from, letFrom, err := n.content(ctx, manager, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, letFrom()) }()
	length, err := filesystem.DeviceLength(from)
	if err != nil {
		return err
	}
	// A device can be larger than it was asked for, and its file system with it.
	if err := manager.Create(ctx, rec.ID, max(rec.DeviceSize, length)); err != nil {
		return err
	}
	rec.Taken = taken(rec)
	if !source.Formatted && !source.Cleared && !manager.Emulated() {
		return nil // nobody has had it yet, so what is on it is nobody's
	}
	to, letTo, err := n.content(ctx, manager, rec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, letTo()) }()
	pair, err := filesystem.OpenCopy(from, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	return n.copyPair(ctx, store, pair, source, rec)
}

// content returns where the bytes of a volume are: a file, or its device, which stays attached only if it is used
// otherwise.
func (n *Node) content(ctx context.Context, manager device.Manager,
	rec *volume.Record) (path string, let func() error, err error) {
	if copier, ok := manager.(device.Copier); ok {
		return copier.File(rec.ID), func() error { return nil }, nil
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

func (n *Node) copyPair(ctx context.Context, store *volume.Store, pair *filesystem.DeviceCopy,
	source, rec *volume.Record) error {
	used, err := inUse(source)
	if err != nil {
		return err
	}
	// What was copied before an interruption may have changed since: nobody had the original's lock.
	changing := used != "" || rec.Job != nil
	j, err := n.beginJob(store, rec, volume.JobCopy, pair.Size())
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Copying a device byte by byte", "from", source.ID, "to", rec.ID, "bytes", pair.Size(),
		"done", rec.Job.Done, "in-use", used != "")
	saved := func(at int64) error {
		if time.Since(j.saved) < jobSave {
			return nil
		}
		return errors.Join(pair.Sync(), j.at(ctx, at, pair.Size()))
	}
	if err := pair.Write(ctx, rec.Job.Done, saved); err != nil {
		return err
	}
	if changing {
		if err := n.catchUp(ctx, pair, source, rec, used != ""); err != nil {
			return err
		}
	}
	if err := pair.Sync(); err != nil {
		return err
	}
	j.end(ctx)
	return nil
}

// catchUps is how often it is tried to find all changes in the time for which writers may wait.
const catchUps = 3

// catchUp copies what changed in the original while it was copied. Its writers wait for no longer than they may: each
// time that this was not enough more of the changes are copied already.
func (n *Node) catchUp(ctx context.Context, pair *filesystem.DeviceCopy, source, rec *volume.Record, used bool) error {
	if !used {
		return pair.Update(ctx)
	}
	started := time.Now()
	if err := pair.Update(ctx); err != nil { // most of it, while they go on; and it shows how long it takes
		return err
	}
	looking := time.Since(started)
	for range catchUps {
		err := n.whileFrozen(ctx, source, func() error {
			bounded, cancel := context.WithTimeout(ctx, n.config.FreezeLimit)
			defer cancel()
			rec.Taken = taken(rec)
			return pair.Update(bounded)
		})
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("volume %s: %w: it is in use, and looking for changes in its %d MiB takes %v, longer than the %v "+
		"for which its writers may wait (--freeze-limit, node.freezeLimit of the chart); stop its pods first, or "+
		"raise the limit",
		source.ID, volume.ErrPrecondition, pair.Size()/volume.MiB, looking.Round(time.Millisecond), n.config.FreezeLimit)
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

// whileFrozen does something while nobody can write to a volume. That the file system is frozen is on disk before it
// is: when this process dies meanwhile, the next one lets the volume's users go on.
func (n *Node) whileFrozen(ctx context.Context, rec *volume.Record, do func() error) error {
	if err := refuseRawInUse(rec); err != nil {
		return err
	}
	if rec.Block || rec.Staged == nil {
		return do()
	}
	mounted, err := mounts.At(rec.Staged.Path)
	if err != nil {
		return err
	}
	if mounted == nil {
		return do()
	}
	rec.Frozen = true
	if err := n.store.Put(rec); err != nil {
		return err
	}
	// What is not on the device yet goes there while writers go on, for the most part.
	if err := filesystem.Sync(rec.Staged.Path); err != nil {
		return err
	}
	started := time.Now()
	if err := filesystem.Freeze(rec.Staged.Path); err != nil {
		return errors.Join(err, n.thaw(rec))
	}
	err = errors.Join(do(), n.thaw(rec))
	klog.FromContext(ctx).V(2).Info("The writers of a volume waited while it was copied", "volume-id", rec.ID,
		"waited", time.Since(started))
	return err
}

// thaw lets a volume's users go on.
func (n *Node) thaw(rec *volume.Record) error {
	if rec.Staged != nil {
		if mounted, err := mounts.At(rec.Staged.Path); err != nil {
			return err
		} else if mounted != nil {
			if err := filesystem.Thaw(rec.Staged.Path); err != nil {
				return err
			}
		}
	}
	rec.Frozen = false
	return n.store.Put(rec)
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
