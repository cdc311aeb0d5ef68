// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/selinux"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// mountOptions returns what a volume is mounted with.
func mountOptions(manager device.Manager, rec *volume.Record, asked []string) ([]string, error) {
	options, err := filesystem.MountOptions(rec.FSType, asked, !manager.Emulated())
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", rec.ID, err)
	}
	return options, nil
}

// mount mounts a volume's file system and makes sure that a volume on persistent memory has its files mapped directly.
// One that has not would be slow, and its writes would be durable only by the page cache's rules: it is refused, with
// what the kernel said.
func (n *Node) mount(ctx context.Context, manager device.Manager, dev string, rec *volume.Record,
	req StageRequest) error {
	options, err := mountOptions(manager, rec, req.MountFlags)
	if err != nil {
		return err
	}
	said := filesystem.WatchKernelLog()
	defer said.Close()
	if err := n.mountFileSystem(ctx, dev, rec, req.Path, options); err != nil {
		return said.Explain(err, dev)
	}
	if manager.Emulated() {
		return nil
	}
	return said.Explain(filesystem.CheckDAX(req.Path), dev)
}

// mountFileSystem mounts a volume's file system, an ext4 one with the kernel module's ext4 when that is ready. What is
// on the device is the same for both, so a module that does not do what it should is no reason not to serve the volume.
func (n *Node) mountFileSystem(ctx context.Context, dev string, rec *volume.Record, path string,
	options []string) error {
	before, err := mounts.At(path)
	if err != nil {
		return err
	}
	fsType := n.config.Module.MountType(rec.FSType)
	if before != nil || fsType == rec.FSType { // what is mounted may be in use, and stays what it is
		return n.mounter.Device(ctx, dev, path, rec.FSType, options)
	}
	err = n.mounter.Device(ctx, dev, path, fsType, labelled(options))
	if err == nil {
		if err = module.Ask(path); err == nil {
			return nil
		}
	}
	if cleanupErr := n.mounter.Cleanup(path); cleanupErr != nil {
		return errors.Join(err, cleanupErr)
	}
	klog.FromContext(ctx).Error(err, "The kernel module's ext4 cannot be used for a volume, using the kernel's own",
		"volume-id", rec.ID)
	n.notifyUsers(ctx, rec, true, events.ReasonStockExt4,
		fmt.Sprintf("volume %s is served by the kernel's own ext4, where relink is a copy: %v", rec.ID, err))
	return n.mounter.Device(ctx, dev, path, rec.FSType, options)
}

// labelled returns what a file system that no SELinux policy knows is mounted with on a node that has one: its files
// would have no label, and could be given none.
func labelled(options []string) []string {
	given := func(option string) bool { return strings.HasPrefix(option, "context=") }
	if !selinux.Enabled() || slices.ContainsFunc(options, given) {
		return options
	}
	return append(slices.Clone(options), "context="+selinux.ReadWrite)
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
		return "relink is a copy: the volume was staged before the kernel module was ready; it uses it when all its pods " +
			"have gone and one comes back"
	}
	return ""
}
