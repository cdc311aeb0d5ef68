// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Expand grows a staged volume, in use, and returns its size.
func (n *Node) Expand(ctx context.Context, id, path string, required, limit int64) (int64, error) {
	rec, err := n.get(id)
	if err != nil {
		return 0, err
	}
	if err := shownAt(rec, path); err != nil {
		return 0, err
	}
	if rec.Staged == nil {
		return 0, fmt.Errorf("volume %s: %w: it is not staged, and grows only in use", id, volume.ErrPrecondition)
	}
	size := rec.Size
	if required != 0 || limit != 0 { // without a size the file system is to fill its device
		if size, err = expandedSize(rec, required, limit); err != nil {
			return 0, err
		}
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return 0, err
	}
	if err := growsRaw(manager, rec, size); err != nil {
		return 0, err
	}
	if err := n.roomToGrow(ctx, manager, rec, size); err != nil {
		return 0, err
	}
	dev, err := manager.Attach(ctx, id)
	if err != nil {
		return 0, err
	}
	// Also when the size is there already: the call before this one may have been cut off before the file system grew.
	if err := n.growDevice(ctx, manager, dev, rec, deviceSize(rec, size)); err != nil {
		return 0, fmt.Errorf("expand volume %s: %w", id, err)
	}
	if size > rec.Size {
		rec.Size, rec.Measured = size, size
		if err := n.store.Put(rec); err != nil {
			return 0, err
		}
	}
	klog.FromContext(ctx).V(2).Info("Expanded a volume", "size", rec.Size, "device-size", rec.DeviceSize)
	return rec.Size, nil
}

// shownAt says whether something is mounted at a path where a volume is said to be. Kubelet's path of a raw block
// volume may be that of the device as kubelet maps it, which is none of ours.
func shownAt(rec *volume.Record, path string) error {
	if rec.Block {
		return nil
	}
	mounted, err := mounts.At(path)
	if err != nil {
		return err
	}
	if mounted == nil {
		return fmt.Errorf("volume %s: %w at %s: nothing is mounted there", rec.ID, volume.ErrNotFound, path)
	}
	return nil
}
