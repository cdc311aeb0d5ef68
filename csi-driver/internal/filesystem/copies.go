// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// FIFREEZE and FITHAW of linux/fs.h.
const (
	ioctlFreeze = 0xc0045877
	ioctlThaw   = 0xc0045878
)

// Freeze makes a mounted file system whole on its device and holds up everybody who writes to it, stores to mapped
// files included, until Thaw.
func Freeze(root string) error {
	if err := onRoot(root, ioctlFreeze); err != nil && !errors.Is(err, unix.EBUSY) { // EBUSY: it is frozen
		return fmt.Errorf("freeze the file system at %s: %w", root, err)
	}
	return nil
}

// Thaw lets a frozen file system go on. It is no error when it is not frozen.
func Thaw(root string) error {
	if err := onRoot(root, ioctlThaw); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it is not frozen
		return fmt.Errorf("thaw the file system at %s: %w", root, err)
	}
	return nil
}

// Sync returns when what was written to a mounted file system is on its device.
func Sync(root string) error {
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
		return fmt.Errorf("sync the file system at %s: %w", root, err)
	}
	return nil
}

func onRoot(root string, request uint) error {
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.IoctlSetInt(int(dir.Fd()), request, 0)
}

// CopyOptions are what a copy is mounted with while it has the identity of its original, which may be mounted as well.
func CopyOptions(fsType string) []string {
	if fsType == volume.XFS {
		return []string{"nouuid"}
	}
	return nil
}

// NewIdentity gives the file system on a device, which is not mounted and was unmounted cleanly, a UUID of its own.
func NewIdentity(ctx context.Context, device, fsType string) error {
	before, err := uuid(ctx, device)
	if err != nil {
		return err
	}
	if fsType == volume.Ext4 {
		if err = repair(ctx, device, "-f"); err == nil { // tune2fs insists on a full check
			_, err = command.Run(ctx, "tune2fs", "-U", "random", device)
		}
	} else {
		_, err = command.Run(ctx, "xfs_db", "-x", "-c", "uuid generate", device)
	}
	if err == nil {
		err = syncDevice(device)
	}
	if err != nil {
		return fmt.Errorf("give the file system on %s a UUID of its own: %w", device, err)
	}
	after, err := uuid(ctx, device)
	if err == nil && after == before { // xfs_db complains and says that all is well
		err = fmt.Errorf("the file system on %s still has the UUID of its original, %s", device, before)
	}
	return err
}

func uuid(ctx context.Context, device string) (string, error) {
	out, err := command.Run(ctx, "blkid", "-p", "-s", "UUID", "-o", "value", device)
	if err != nil {
		return "", fmt.Errorf("UUID of the file system on %s: %w", device, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// GrowUnmounted grows an ext4 file system to the size of its device while it is not mounted. XFS grows mounted only,
// see Grow.
func GrowUnmounted(ctx context.Context, device string) error {
	if err := repair(ctx, device, "-f"); err != nil {
		return err
	}
	if _, err := command.Run(ctx, "resize2fs", device); err != nil {
		return fmt.Errorf("grow the file system on %s: %w", device, err)
	}
	return syncDevice(device)
}
