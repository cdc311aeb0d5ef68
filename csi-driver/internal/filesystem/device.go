// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// copyStep is how much of a device is copied at once, and between two looks at the context.
const copyStep = 4 * volume.MiB

// CopyDevice copies a block device to the beginning of another one, which nobody else uses and which is not smaller, writes zeros over
// the rest of that, and returns when all of it is on the medium. The caller sees to it that nobody writes to the first one. Neither is
// read or written through the page cache, which may hold something else than the medium of a device that a file system is mounted on.
func CopyDevice(ctx context.Context, from, to string) error {
	if err := copyDevice(ctx, from, to); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}

func copyDevice(ctx context.Context, from, to string) (err error) {
	length, err := DeviceLength(from)
	if err != nil {
		return err
	}
	size, err := DeviceLength(to)
	if err != nil {
		return err
	}
	if size < length {
		return fmt.Errorf("it has %d bytes, which do not fit into %d", length, size)
	}
	source, err := os.OpenFile(from, os.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	// Exclusively: the kernel refuses a device that is mounted, or that somebody else holds.
	target, err := os.OpenFile(to, os.O_WRONLY|unix.O_DIRECT|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	buffer, err := unix.Mmap(-1, 0, int(copyStep), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // aligned
	if err != nil {
		return fmt.Errorf("memory to copy with: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(buffer)) }()
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := buffer[:min(copyStep, size-at)]
		switch {
		case at < length:
			piece = piece[:min(int64(len(piece)), length-at)]
			if n, err := source.ReadAt(piece, at); n < len(piece) {
				return fmt.Errorf("at byte %d: %w", at+int64(n), err)
			}
		case at-length < copyStep: // the first piece behind what was copied
			clear(buffer)
		}
		if _, err := target.WriteAt(piece, at); err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
		at += int64(len(piece))
	}
	return target.Sync()
}
