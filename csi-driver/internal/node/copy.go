// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// controlDir is the directory of a volume's root that the library's logs are in.
const controlDir = ".splitfs"

// copyDevice makes the device of rec out of that of source, as it is at one moment. Nobody can use rec yet. When it fails, or is
// interrupted, it is done again from the beginning.
func (n *Node) copyDevice(ctx context.Context, source, rec *volume.Record) error {
	manager, err := n.config.Managers.GetFor(source.Device, rec.Durability)
	if err != nil {
		return err
	}
	if err := n.clearHalfMade(ctx, manager, rec.ID); err != nil {
		return err
	}
	if copier, ok := manager.(device.Copier); ok {
		err = n.copyShared(ctx, copier, source, rec)
	} else {
		err = n.copyBytes(ctx, manager, source, rec)
	}
	if err != nil {
		return err
	}
	if !rec.Formatted {
		return nil // raw, or nothing is on it yet
	}
	return n.settle(ctx, manager, source, rec)
}

// copyShared leaves the copying to a manager that has a better way than byte by byte.
func (n *Node) copyShared(ctx context.Context, copier device.Copier, source, rec *volume.Record) error {
	if err := n.whileFrozen(ctx, source, func() error { return copier.Copy(ctx, source.ID, rec.ID, rec.DeviceSize, !rec.Erase.Wanted()) }); err != nil {
		return err
	}
	return copier.FinishCopy(ctx, rec.ID)
}

// copyBytes copies from one device node to the other. What is behind the original's bytes is zero afterwards. Both stay attached only
// if they are used otherwise.
func (n *Node) copyBytes(ctx context.Context, manager device.Manager, source, rec *volume.Record) (err error) {
	from, err := manager.Attach(ctx, source.ID)
	if err != nil {
		return err
	}
	detach := func(id string) {
		cleanup, cancel := detached(ctx)
		defer cancel()
		err = errors.Join(err, manager.Detach(cleanup, id))
	}
	if source.Staged == nil {
		defer detach(source.ID)
	}
	length, err := filesystem.DeviceLength(from)
	if err != nil {
		return err
	}
	// A device can be larger than it was asked for, and its file system with it.
	if err := manager.Create(ctx, rec.ID, max(rec.DeviceSize, length)); err != nil {
		return err
	}
	if !source.Formatted && !source.Cleared && !manager.Emulated() {
		return nil // nobody has had it yet, so what is on it is nobody's
	}
	to, err := manager.Attach(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer detach(rec.ID)
	klog.FromContext(ctx).V(2).Info("Copying a device byte by byte", "from", source.ID, "to", rec.ID, "bytes", length)
	return n.whileFrozen(ctx, source, func() error { return filesystem.CopyDevice(ctx, from, to) })
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

// whileFrozen does something while nobody can write to a volume. That the file system is frozen is on disk before it is: when this
// process dies meanwhile, the next one lets the volume's users go on.
func (n *Node) whileFrozen(ctx context.Context, rec *volume.Record, do func() error) error {
	if rec.Block {
		if len(rec.Published) > 0 {
			return fmt.Errorf("volume %s: %w: it is a raw block volume in use, and nobody but its user can tell when what is on it is whole; stop its pods first", rec.ID, volume.ErrPrecondition)
		}
		return do()
	}
	if rec.Staged == nil {
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
	if err := filesystem.Freeze(rec.Staged.Path); err != nil {
		return errors.Join(err, n.thaw(rec))
	}
	klog.FromContext(ctx).V(2).Info("Froze a volume to copy it", "volume-id", rec.ID)
	return errors.Join(do(), n.thaw(rec))
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

// settle makes a copy of a file system in use one that was never in use: journal and operation logs are replayed now, while it is
// known that the memory they were written in was not lost, and it gets an identity and the size of its own.
func (n *Node) settle(ctx context.Context, manager device.Manager, source, rec *volume.Record) error {
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
	if err := n.settleMounted(ctx, dev, root, source, rec); err != nil {
		return err
	}
	if err := n.mounter.Cleanup(root); err != nil {
		return err
	}
	if err := filesystem.NewIdentity(ctx, dev, rec.FSType); err != nil {
		return err
	}
	if rec.FSType == volume.Ext4 && rec.DeviceSize > source.DeviceSize {
		if err := filesystem.GrowUnmounted(ctx, dev); err != nil {
			return err
		}
	}
	return manager.Detach(ctx, rec.ID)
}

func (n *Node) settleMounted(ctx context.Context, dev, root string, source, rec *volume.Record) error {
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
		klog.FromContext(ctx).V(2).Info("Recovered a copy", "volume-id", rec.ID, "of", source.ID, "replayed", result.Replayed, "quarantined", result.Quarantined)
	}
	if rec.FSType == volume.XFS && rec.DeviceSize > source.DeviceSize {
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
