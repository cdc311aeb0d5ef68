// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// stageBlock attaches the device of a raw block volume. What is on it is its user's alone.
func (n *Node) stageBlock(ctx context.Context, manager device.Manager, rec *volume.Record, path string) error {
	rec.Staged = &volume.Staging{Path: path}
	if err := n.store.Put(rec); err != nil {
		return err
	}
	dev, err := manager.Attach(ctx, rec.ID)
	if err == nil && !manager.Emulated() {
		err = n.clear(ctx, dev, rec)
	}
	if err != nil {
		return fmt.Errorf("stage volume %s: %w", rec.ID, err)
	}
	klog.FromContext(ctx).V(2).Info("Staged a raw block volume", "path", path)
	return nil
}

// clear writes zeros over a new device of persistent memory, once: it holds what its extents held before, which may be
// another user's. (An emulated device is a file, which reads as zeros.) An interrupted call is gone on with: nobody has
// seen the device yet.
func (n *Node) clear(ctx context.Context, dev string, rec *volume.Record) error {
	if rec.Cleared {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Clearing a new raw block volume", "device", dev, "bytes", rec.DeviceSize)
	j, err := n.beginJob(n.store, rec, volume.JobClear, rec.DeviceSize)
	if err != nil {
		return err
	}
	if err := filesystem.Zero(ctx, dev, rec.Job.Done, func(at int64) error {
		return j.at(ctx, at, max(at, rec.DeviceSize))
	}); err != nil {
		return err
	}
	j.end(ctx)
	rec.Cleared = true
	return n.store.Put(rec)
}

// StagesLong says whether staging a volume takes as long as it is large.
func (n *Node) StagesLong(id string) bool {
	rec, err := n.store.Get(id)
	if err != nil || !rec.Block || rec.Cleared {
		return false
	}
	manager, err := n.config.Managers.Of(rec)
	return err == nil && !manager.Emulated()
}

// growsRaw refuses to grow a raw block volume on persistent memory: its user would see what the new extents held before
// anybody could clear them.
func growsRaw(manager device.Manager, rec *volume.Record, size int64) error {
	if rec.Block && size > rec.Size && !manager.Emulated() {
		return fmt.Errorf("volume %s: %w: raw block volumes on persistent memory do not grow; copy it to a new, larger claim",
			rec.ID, volume.ErrInvalid)
	}
	return nil
}

// publishBlock shows the device at a target. Whether a device can be written to is a property of the device, not of a
// path that leads to it: a mount that is read-only does not keep anybody from writing to the device behind it. So all
// targets of a device are read-only or none is.
func (n *Node) publishBlock(ctx context.Context, rec *volume.Record, req PublishRequest) error {
	if err := n.forgetUnmounted(rec); err != nil {
		return err
	}
	for target, p := range rec.Published {
		if target != req.Target && p.ReadOnly != req.ReadOnly {
			return fmt.Errorf("volume %s: %w: it is published at %s already, where read-only is %t; a raw block volume is "+
				"read-only for all pods or for none",
				rec.ID, volume.ErrPrecondition, target, p.ReadOnly)
		}
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	dev, err := manager.Attach(ctx, rec.ID) // finds the one that staging attached
	if err != nil {
		return fmt.Errorf("publish volume %s: %w", rec.ID, err)
	}
	if err := setReadOnly(dev, req.ReadOnly); err != nil {
		return fmt.Errorf("publish volume %s: %w", rec.ID, err)
	}
	return n.show(ctx, rec, req, dev, "")
}

// setReadOnly makes the kernel refuse writes to a device, or allow them again.
func setReadOnly(dev string, readOnly bool) error {
	f, err := os.OpenFile(dev, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	value := 0
	if readOnly {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("set %s read-only to %t: %w", dev, readOnly, err)
	}
	return nil
}

// allowWrites undoes what a read-only target set: the mark belongs to the device's number, which the next user of a
// loop device gets. A device that is lost has no number.
func allowWrites(ctx context.Context, manager device.Manager, id string) error {
	dev, err := manager.Attach(ctx, id) // the one that is attached, except after a reboot
	if errors.Is(err, volume.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return setReadOnly(dev, false)
}

func refuseWhileBlockPublished(rec *volume.Record) error {
	for target := range rec.Published {
		if mounted, err := mounts.At(target); err != nil {
			return err
		} else if mounted != nil {
			return fmt.Errorf("volume %s: %w: it is still published at %s", rec.ID, volume.ErrPrecondition, target)
		}
	}
	return nil
}

func rawBlockMessage(rec *volume.Record) string {
	return fmt.Sprintf("volume %s is a raw block device: the SplitFS library works on files and does not serve it, so "+
		"the mode %q means nothing for it; its writes are durable by the rules of block devices (fsync, O_DSYNC)",
		rec.ID, rec.Mode)
}
