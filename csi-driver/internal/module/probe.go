// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// The interface of relink, as in kernel-patch/uapi/ext4_relink.h.
const (
	relinkVersion = 1
	relinkQuery   = 1 << 0
	// EXT4_IOC_RELINK is _IOWR('f', 120, struct ext4_relink).
	ioctlRelink = 3<<30 | unsafe.Sizeof(relinkArgs{})<<16 | 'f'<<8 | 120
)

type relinkArgs struct {
	Version, Flags                             uint32
	DonorFD                                    int32
	KnownFlags                                 uint32
	DonorOffset, TargetOffset, Length, NewSize uint64
	Moved                                      uint64
	ExtentsMoved, ExtentsFreed                 uint32
	Reserved                                   [2]uint64
}

// Ask asks the file system mounted at path for the relink interface. A nil error means that it is there, in a version
// we know.
func Ask(path string) error {
	// A file without a name: nothing is left behind, whatever happens.
	fd, err := unix.Open(path, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("ask %s for relink: %w", path, err)
	}
	defer unix.Close(fd)
	args := relinkArgs{Version: relinkVersion, Flags: relinkQuery, DonorFD: -1}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlRelink, uintptr(unsafe.Pointer(&args))); errno != 0 {
		if errno == unix.ENOTTY {
			return fmt.Errorf("the file system at %s has no relink: %w", path, errno)
		}
		return fmt.Errorf("ask %s for relink: %w", path, errno)
	}
	if args.Version != relinkVersion {
		return fmt.Errorf("the file system at %s has version %d of relink, this driver knows version %d", path, args.Version,
			relinkVersion)
	}
	return nil
}

// errNoLoop: this node has no loop devices, so there is nothing to make a file system of its own on.
var errNoLoop = errors.New("no loop devices")

// trialSize is the smallest file system that gets a journal.
const trialSize = 16 * volume.MiB

// Trial mounts a small file system of the module's type, made in dir for this purpose, and asks it. No user's volume is
// the first to meet a module.
func Trial(ctx context.Context, dir string) (err error) {
	fail := func(step string, err error) error {
		return fmt.Errorf("try the module on a file system of its own: %s: %w", step, err)
	}
	work, err := os.MkdirTemp(dir, "trial-")
	if err != nil {
		return fail("make a directory", err)
	}
	mounted := false
	defer func() {
		if !mounted { // nothing is ever removed below a mount point
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	image, mount := filepath.Join(work, "image"), filepath.Join(work, "mount")
	if err := errors.Join(os.Mkdir(mount, 0o700), os.WriteFile(image, nil, 0o600),
		os.Truncate(image, trialSize)); err != nil {
		return fail("make a device", err)
	}
	device, err := loop.Attach(ctx, image)
	if errors.Is(err, fs.ErrNotExist) {
		return fail("make a device", fmt.Errorf("%w: %w", errNoLoop, err))
	}
	if err != nil {
		return fail("make a device", err)
	}
	defer func() { err = errors.Join(err, loop.Detach(context.WithoutCancel(ctx), image)) }()
	if err := filesystem.Format(ctx, device, volume.Ext4); err != nil {
		return fail("format", err)
	}
	mounter := mountutils.NewWithoutSystemd("")
	if err := mounter.Mount(device, mount, FileSystemType, nil); err != nil {
		return fail("mount", err)
	}
	mounted = true
	defer func() {
		unmountErr := mounter.Unmount(mount)
		mounted = unmountErr != nil
		err = errors.Join(err, unmountErr)
	}()
	if err := Ask(mount); err != nil {
		return fail("ask", err)
	}
	return nil
}
