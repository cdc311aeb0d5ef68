// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// mount mounts a volume's file system, an ext4 one with the kernel module's ext4 when that is ready. What is on the device is the
// same for both, so a module that does not do what it should is no reason not to serve the volume.
func (n *Node) mount(ctx context.Context, dev string, rec *volume.Record, req StageRequest) error {
	before, err := mounts.At(req.Path)
	if err != nil {
		return err
	}
	fsType := n.config.Module.MountType(rec.FSType)
	if before != nil || fsType == rec.FSType { // what is mounted may be in use, and stays what it is
		return n.mounter.Device(ctx, dev, req.Path, rec.FSType, req.MountFlags)
	}
	err = n.mounter.Device(ctx, dev, req.Path, fsType, req.MountFlags)
	if err == nil {
		if err = module.Ask(req.Path); err == nil {
			return nil
		}
	}
	if cleanupErr := n.mounter.Cleanup(req.Path); cleanupErr != nil {
		return errors.Join(err, cleanupErr)
	}
	klog.FromContext(ctx).Error(err, "The kernel module's ext4 cannot be used for a volume, using the kernel's own", "volume-id", rec.ID)
	n.tellUsers(ctx, rec, true, events.ReasonStockExt4,
		fmt.Sprintf("volume %s is served by the kernel's own ext4, where relink is a copy: %v", rec.ID, err))
	return n.mounter.Device(ctx, dev, req.Path, rec.FSType, req.MountFlags)
}

// stockExt4 says why a mounted ext4 volume has to do without the module that was asked for, "" when it has not to.
func (n *Node) stockExt4(rec *volume.Record, mountedAs string) string {
	if rec.FSType != volume.Ext4 || mountedAs == module.FileSystemType {
		return ""
	}
	switch s := n.config.Module.Status(); {
	case s.Trouble():
		return fmt.Sprintf("relink is a copy: kernel module %s: %s", s.State, s.Message)
	case s.State == module.Ready:
		return "relink is a copy: the volume was staged before the kernel module was ready; it uses it when all its pods have gone and one comes back"
	}
	return ""
}
