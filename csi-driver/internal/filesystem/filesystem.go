// SPDX-License-Identifier: Apache-2.0

// Package filesystem makes, checks, grows and measures the file system of a volume.
package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Both file systems are laid out in units of 2 MiB, the size of a huge page: on persistent memory a file's extents can
// then be mapped with huge pages, and emulated volumes run the same layout.

// Format makes a new file system on a device, over whatever is there: the caller knows that it holds nobody's data.
// Blocks are not discarded: that would give the space back that the backing file reserved.
func Format(ctx context.Context, device, fsType string) error {
	var err error
	switch fsType {
	case volume.XFS:
		err = formatXFS(ctx, device)
	case volume.Ext4:
		// The ratio of inodes is that of all but the smallest file systems. Those would have four times as many, and keep
		// that however large they grow: more than anybody has counted (DeviceSize).
		_, err = command.Run(ctx, "mkfs.ext4", "-q", "-F", "-b", "4096", "-i", "16384", "-m", "0",
			"-E", "stride=512,stripe_width=512,nodiscard,lazy_itable_init=0,lazy_journal_init=0", device)
	default:
		return volume.CheckFSType(fsType)
	}
	if err != nil {
		return fmt.Errorf("format %s: %w", device, err)
	}
	return syncDevice(device)
}

// xfsSmall is the device size below which four allocation groups, the default, are too small to hold a log of 64 MiB.
const xfsSmall = volume.GiB

func formatXFS(ctx context.Context, device string) error {
	size, err := DeviceLength(device)
	if err != nil {
		return err
	}
	layout := "su=2m,sw=1"
	if size < xfsSmall {
		layout += ",agcount=2"
	}
	// Newer versions of mkfs make a reverse mapping by default. It takes 0.7 % of the device, which nobody here has
	// counted (DeviceSize), and nothing here uses it.
	args := slices.Concat([]string{"-q", "-f", "-K", "-m", "crc=1,reflink=1,rmapbt=0", "-d", layout, "-l", "su=32k"},
		xfsFeatures(ctx), []string{device})
	_, err = command.Run(ctx, "mkfs.xfs", args...)
	return err
}

// DeviceLength returns how many bytes a block device has.
func DeviceLength(device string) (int64, error) {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Seek(0, io.SeekEnd)
}

// xfsFeatures picks the inode features by what both sides can do: mkfs of the image, and the kernel of the node, which
// may be older and would refuse to mount features it does not know.
func xfsFeatures(ctx context.Context) []string {
	var features []string
	for _, f := range []struct {
		name         string
		major, minor int  // first kernel that mounts it
		want         bool // use it when the kernel can
	}{
		{"exchange", 6, 10, true}, // XFS_IOC_EXCHANGE_RANGE: relink where reflink is refused
		{"nrext64", 5, 19, true},
	} {
		value := "0"
		if f.want && kernelAtLeast(f.major, f.minor) {
			value = "1"
		}
		if mkfsXFSKnows(ctx, f.name) {
			features = append(features, "-i", f.name+"="+value)
		}
	}
	return features
}

// mkfsXFSKnows asks mkfs.xfs itself, by a dry run on an empty temporary file.
func mkfsXFSKnows(ctx context.Context, feature string) bool {
	f, err := os.CreateTemp("", "splitfs-mkfs-*")
	if err != nil {
		return false
	}
	_, err = command.Run(ctx, "mkfs.xfs", "-N", "-f", "-i", feature+"=1", "-d", "file,size=512m,name="+f.Name())
	if undo := errors.Join(f.Close(), os.Remove(f.Name())); undo != nil {
		klog.FromContext(ctx).Error(undo, "A temporary file is left", "path", f.Name())
	}
	return err == nil
}

func kernelAtLeast(major, minor int) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false
	}
	var haveMajor, haveMinor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(uts.Release[:]), "%d.%d", &haveMajor, &haveMinor); err != nil {
		return false
	}
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}

func syncDevice(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", device, err)
	}
	return nil
}

// Type returns the type of the file system on a device, "" when there is none.
func Type(ctx context.Context, device string) (string, error) {
	out, err := command.Run(ctx, "blkid", "-p", "-s", "TYPE", "-o", "value", device)
	if command.ExitCode(err) == 2 { // nothing found
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a file system on %s: %w", device, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Check prepares a file system for mounting. XFS replays its log when it is mounted; ext4 is checked here, which also
// does what can be done without asking anybody.
func Check(ctx context.Context, device, fsType string) error {
	if fsType != volume.Ext4 {
		return nil
	}
	return repair(ctx, device)
}

// repair does to an ext4 file system what can be done without asking anybody.
func repair(ctx context.Context, device string, options ...string) error {
	_, err := command.Run(ctx, "e2fsck", append(append([]string{"-p"}, options...), device)...)
	if code := command.ExitCode(err); err == nil || code == 1 { // 1: errors corrected
		return nil
	}
	return fmt.Errorf("the file system on %s needs a repair by hand (e2fsck -f): %w", device, err)
}

// Grow grows a mounted file system to the size of its device.
func Grow(ctx context.Context, device, mountPath, fsType string) error {
	var err error
	if fsType == volume.Ext4 {
		_, err = command.Run(ctx, "resize2fs", device)
	} else {
		_, err = command.Run(ctx, "xfs_growfs", "-d", mountPath)
	}
	if err != nil && fsType == volume.Ext4 {
		return fmt.Errorf("grow the file system on %s (ext4 in use grows only for a process with CAP_SYS_RESOURCE): %w",
			device, err)
	}
	if err != nil {
		return fmt.Errorf("grow the file system on %s: %w", device, err)
	}
	return nil
}

// Usage of a mounted file system, as df shows it.
type Usage struct {
	Total, Used, Available                   int64
	InodesTotal, InodesUsed, InodesAvailable int64
}

// Measure returns the usage of the file system mounted at path.
func Measure(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, fmt.Errorf("file system at %s: %w", path, err)
	}
	return Usage{
		Total: int64(st.Blocks) * st.Bsize, Used: int64(st.Blocks-st.Bfree) * st.Bsize,
		Available:   int64(st.Bavail) * st.Bsize,
		InodesTotal: int64(st.Files), InodesUsed: int64(st.Files - st.Ffree), InodesAvailable: int64(st.Ffree),
	}, nil
}
