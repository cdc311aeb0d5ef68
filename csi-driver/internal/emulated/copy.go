// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

var _ device.Copier = (*Manager)(nil)

// FinishCopy implements device.Copier. Blocks that the copy still shares with its original become its own: a block that is shared
// becomes two when it is written to, and the second one has to be there then, as all space of a volume has.
func (m *Manager) FinishCopy(_ context.Context, to string) error {
	target, err := os.OpenFile(m.path(to), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	info, err := target.Stat()
	if err == nil {
		err = m.unshare(target, info.Size())
	}
	return errors.Join(err, target.Close())
}

// unshare gives a file blocks of its own in place of those that it shares with another.
func (m *Manager) unshare(f *os.File, size int64) error {
	if size == 0 {
		return nil // a copy that was interrupted before it had any; the kernel refuses to unshare nothing
	}
	switch err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_UNSHARE_RANGE, 0, size); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil // no reflinks, so nothing is shared; or btrfs, which reserves nothing that is rewritten anyway
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w in %s: %w", volume.ErrExhausted, m.config.Dir, err)
	case err != nil:
		return fmt.Errorf("unshare the blocks of %s: %w", f.Name(), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

// copyStep is how much is copied between two looks at the context.
const copyStep = 64 * volume.MiB

// Copy implements device.Copier. On a file system with reflinks it takes no time, when the copy may share; else the bytes are copied.
func (m *Manager) Copy(ctx context.Context, from, to string, size int64, share bool) error {
	source, err := os.Open(m.path(from))
	if err != nil {
		return fmt.Errorf("open the backing file to copy: %w", err)
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return fmt.Errorf("backing file %s: %w", source.Name(), err)
	}
	target, err := os.OpenFile(m.path(to), os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create backing file: %w", err)
	}
	err = m.copyInto(ctx, source, target, info.Size(), max(size, info.Size()), share)
	return errors.Join(err, target.Close())
}

func (m *Manager) copyInto(ctx context.Context, source, target *os.File, length, size int64, share bool) error {
	// What is written to the loop device and not to its file yet would not be copied.
	if err := source.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", source.Name(), err)
	}
	// The space is taken before anything is copied: two copies at a time must not both believe in the same room.
	if err := m.allocate(target, size); err != nil {
		return err
	}
	if share {
		err := unix.IoctlFileClone(int(target.Fd()), int(source.Fd()))
		if err == nil {
			// The clone took the place, and the size, of what was reserved.
			return m.allocate(target, size)
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EXDEV) {
			return fmt.Errorf("clone %s: %w", source.Name(), err)
		}
	}
	klog.FromContext(ctx).V(2).Info("Copying a device byte by byte", "from", source.Name(), "to", target.Name(), "bytes", length, "may-share", share)
	if err := copyBytes(ctx, source, target, length); err != nil {
		return fmt.Errorf("copy %s: %w", source.Name(), err)
	}
	return m.allocate(target, size)
}

// copyBytes copies what was ever written to source; the rest of target is zero already, as it is in source.
func copyBytes(ctx context.Context, source, target *os.File, length int64) error {
	for done := int64(0); done < length; {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, err := unix.Seek(int(source.Fd()), done, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(source.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		step := min(copyStep, min(end, length)-start)
		n, err := io.CopyN(io.NewOffsetWriter(target, start), io.NewSectionReader(source, start, step), step)
		done = start + n
		if err != nil {
			return err
		}
	}
	return nil
}
