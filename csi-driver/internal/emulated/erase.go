// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

var _ device.Eraser = (*Manager)(nil)

// eraseStep is how much is erased between two looks at the context, and what is written to disk at once.
const eraseStep = 64 * volume.MiB

// inPlace are file systems that write over a file's blocks where they are. Others (btrfs) write elsewhere and leave the
// old ones.
var inPlace = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true}

// CheckErase implements device.Eraser.
func (m *Manager) CheckErase(how volume.Erase) error {
	if how != volume.EraseOverwrite {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.config.Dir, &st); err != nil {
		return fmt.Errorf("file system of %s: %w", m.config.Dir, err)
	}
	if !inPlace[st.Type] {
		return fmt.Errorf("%w: volumes of this node cannot be overwritten when they are deleted: the file system of %s "+
			"(type %#x) is not known to write over blocks where they are; put emulated devices on ext4, xfs or tmpfs, or "+
			"set erase to %q",
			volume.ErrInvalid, m.config.Dir, st.Type, volume.EraseNone)
	}
	return nil
}

// Erase implements device.Eraser, on the backing file: a loop device makes of zeros that are written to all of it a
// call by which the file system gives the file other blocks, or marks these as never written.
func (m *Manager) Erase(ctx context.Context, id string, how volume.Erase) error {
	path := m.path(id)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backing file %s: %w", path, volume.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("open the backing file to erase: %w", err)
	}
	return errors.Join(m.erase(ctx, f, how), f.Close())
}

func (m *Manager) erase(ctx context.Context, f *os.File, how volume.Erase) error {
	// What a loop device still holds could be written after the zeros.
	if err := loop.Detach(ctx, f.Name()); err != nil {
		return err
	}
	if dev, err := loop.Find(f.Name()); err != nil {
		return err
	} else if dev != "" {
		return fmt.Errorf("erase %s: %w: %s is still in use by somebody else", f.Name(), volume.ErrBusy, dev)
	}
	if err := m.CheckErase(how); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("erase %s: %w", f.Name(), err)
	}
	step := m.overwrite
	if how == volume.EraseDiscard {
		step = discard
	}
	return inSteps(info.Size(), eraseStep, func(at, length int64) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("erase %s: %w after %d of %d bytes", f.Name(), err, at, info.Size())
		}
		if err := step(f, at, length); err != nil {
			return fmt.Errorf("erase %s at %d: %w", f.Name(), at, err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("erase %s: %w", f.Name(), err)
		}
		return nil
	})
}

// overwrite writes zeros over the blocks of a part of a file, after it has got blocks of its own there.
func (m *Manager) overwrite(f *os.File, at, length int64) error {
	if err := m.unshare(f, at, length); err != nil {
		return err
	}
	return zero(f, at, length)
}

func zero(f *os.File, at, length int64) error {
	zeros := make([]byte, volume.MiB)
	for end := at + length; at < end; {
		n, err := f.WriteAt(zeros[:min(volume.MiB, end-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

func discard(f *os.File, at, length int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
}
