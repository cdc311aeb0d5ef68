// SPDX-License-Identifier: Apache-2.0

// Package mounts mounts and unmounts, on top of k8s.io/mount-utils, and always looks at what is really mounted.
package mounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	mountutils "k8s.io/mount-utils"
)

const mountInfo = "/proc/self/mountinfo"

// Mounter mounts. The zero value is not usable.
type Mounter struct{ mounter mountutils.Interface }

// New returns a Mounter. It runs mount(8) directly: inside a container there is no systemd to put a mount into a scope
// of.
func New() *Mounter { return &Mounter{mounter: mountutils.NewWithoutSystemd("")} }

// At returns what is mounted on top at path, or nil when path is no mount point.
func At(path string) (*mountutils.MountInfo, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil && mountutils.IsCorruptedMnt(err) {
		// A file system that has shut down does not even answer what its root is. It is a mount point all the same.
		if real, err = filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			real = filepath.Join(real, filepath.Base(path))
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) { // nor can there be anything below a file
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mounts at %s: %w", path, err)
	}
	all, err := mountutils.ParseMountInfo(mountInfo)
	if err != nil {
		return nil, fmt.Errorf("mounts at %s: %w", path, err)
	}
	var found *mountutils.MountInfo
	for i := range all {
		if all[i].MountPoint == real {
			found = &all[i] // the last one listed is on top
		}
	}
	return found, nil
}

// OfDevice returns all mounts of a file system, by the numbers of its block device.
func OfDevice(major, minor uint32) ([]mountutils.MountInfo, error) {
	all, err := mountutils.ParseMountInfo(mountInfo)
	if err != nil {
		return nil, fmt.Errorf("mounts of device %d:%d: %w", major, minor, err)
	}
	return slices.DeleteFunc(all, func(m mountutils.MountInfo) bool {
		return m.Major != int(major) || m.Minor != int(minor)
	}), nil
}

// DeviceNumbers returns major and minor number of a block device node.
func DeviceNumbers(device string) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return 0, 0, fmt.Errorf("device %s: %w", device, err)
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), nil
}

// Device mounts a block device. A path where it is mounted already is left alone; one with something else on it is an
// error.
func (m *Mounter) Device(ctx context.Context, device, path, fsType string, options []string) error {
	major, minor, err := DeviceNumbers(device)
	if err != nil {
		return err
	}
	mounted, err := At(path)
	if err != nil {
		return err
	}
	if mounted != nil {
		if mounted.Major == int(major) && mounted.Minor == int(minor) {
			return nil
		}
		return fmt.Errorf("mount %s at %s: %s is mounted there", device, path, mounted.Source)
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("create mount point: %w", err)
	}
	if err := m.mounter.Mount(device, path, fsType, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", device, path, err)
	}
	klog.FromContext(ctx).V(3).Info("Mounted", "device", device, "path", path)
	return nil
}

// Bind shows source, a directory or a device node, at target with the given per-mount options ("ro", "nosuid", ...). A
// bind mount takes its options in a second step; this one fails, and unmounts, unless they are in force in the end.
func (m *Mounter) Bind(ctx context.Context, source, target string, options []string) error {
	if mounted, err := At(target); err != nil {
		return err
	} else if mounted != nil {
		return finishBind(source, target, options)
	}
	if err := makeTarget(source, target); err != nil {
		return fmt.Errorf("create mount point: %w", err)
	}
	err := m.mounter.Mount(source, target, "", append([]string{"bind"}, options...))
	if err == nil {
		err = checkBind(source, target, options)
	}
	if err != nil {
		// Nobody has seen the mount yet: kubelet starts containers only after success.
		return errors.Join(fmt.Errorf("bind %s to %s: %w", source, target, err), m.Cleanup(target))
	}
	klog.FromContext(ctx).V(3).Info("Bind-mounted", "source", source, "target", target, "options", options)
	return nil
}

// makeTarget makes what source can be mounted on: a directory for a directory, a file for anything else.
func makeTarget(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// finishBind does the second step where a process that was killed had done the first one only. A mount that has its
// options, or is of something else, stays as it is.
func finishBind(source, target string, options []string) error {
	if err := sameFile(source, target); err != nil {
		return err
	}
	if checkOptions(target, options) == nil {
		return nil
	}
	var missing uint64
	for option, attribute := range bindAttributes {
		if slices.Contains(options, option) {
			missing |= attribute
		}
	}
	if missing != 0 {
		attributes := unix.MountAttr{Attr_set: missing}
		if err := unix.MountSetattr(unix.AT_FDCWD, target, 0, &attributes); err != nil {
			return fmt.Errorf("finish the mount at %s with the options %v: %w", target, options, err)
		}
	}
	return checkOptions(target, options)
}

// bindAttributes are the options that take something from who uses a mount.
var bindAttributes = map[string]uint64{
	"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
}

// checkBind compares what is mounted with what should be.
func checkBind(source, target string, options []string) error {
	if err := sameFile(source, target); err != nil {
		return err
	}
	return checkOptions(target, options)
}

func checkOptions(target string, options []string) error {
	mounted, err := At(target)
	if err != nil {
		return err
	}
	if mounted == nil {
		return fmt.Errorf("%s is not a mount point", target)
	}
	readOnly := slices.Contains(options, "ro")
	if slices.Contains(mounted.MountOptions, "ro") != readOnly {
		return fmt.Errorf("the mount at %s has the options %v, wanted %v", target, mounted.MountOptions, options)
	}
	for _, option := range options {
		if !slices.Contains(mounted.MountOptions, option) {
			return fmt.Errorf("the mount at %s has the options %v, wanted %v", target, mounted.MountOptions, options)
		}
	}
	return nil
}

// sameFile says whether source is what is seen at target.
func sameFile(source, target string) error {
	var want, have unix.Stat_t
	if err := unix.Stat(source, &want); err != nil {
		return fmt.Errorf("stat %s: %w", source, err)
	}
	if err := unix.Stat(target, &have); err != nil {
		return fmt.Errorf("stat %s: %w", target, err)
	}
	if want.Dev != have.Dev || want.Ino != have.Ino {
		return fmt.Errorf("something other than %s is mounted at %s", source, target)
	}
	return nil
}

// Cleanup unmounts path and removes the empty directory that is left. It never removes anything inside: when the
// unmount failed that would be the user's data. It is no error when path does not exist or is not mounted.
func (m *Mounter) Cleanup(path string) error {
	if err := mountutils.CleanupMountPoint(path, m.mounter, true); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
