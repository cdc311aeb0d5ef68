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
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

var (
	_ device.Copier = (*Manager)(nil)
	_ device.Filed  = (*Manager)(nil)
)

// File implements device.Filed.
func (m *Manager) File(id string) string { return m.path(id) }

// unshareStep is how much of a file gets blocks of its own at once: so long it takes at most until an interrupted call
// ends.
const unshareStep = 64 * volume.MiB

// Reserve implements device.Copier. The space is taken before anything is shared: two copies at a time must not both
// believe in the same room. What the original's pages hold that its file does not have yet is written now, while its
// users go on.
func (m *Manager) Reserve(_ context.Context, from, to string, size int64) error {
	return m.withBoth(from, to, os.O_CREATE|os.O_TRUNC, func(source, target *os.File) error {
		info, err := source.Stat()
		if err != nil {
			return fmt.Errorf("backing file %s: %w", source.Name(), err)
		}
		if err := source.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", source.Name(), err)
		}
		m.setShared(to, 0) // of an earlier call
		return m.allocate(target, max(size, info.Size()))
	})
}

// setShared notes how much of a copy may still be shared with its original.
func (m *Manager) setShared(id string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setSharedLocked(id, bytes)
}

func (m *Manager) setSharedLocked(id string, bytes int64) {
	if bytes > 0 {
		m.shared[id] = bytes
	} else {
		delete(m.shared, id)
	}
}

// Share implements device.Copier, by a reflink.
func (m *Manager) Share(_ context.Context, from, to string) error {
	return m.withBoth(from, to, 0, func(source, target *os.File) error {
		info, err := target.Stat()
		if err != nil {
			return fmt.Errorf("backing file %s: %w", target.Name(), err)
		}
		// What was reserved is free from the clone on, and nobody else may find it so.
		m.mu.Lock()
		defer m.mu.Unlock()
		err = unix.IoctlFileClone(int(target.Fd()), int(source.Fd()))
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTTY),
			errors.Is(err, unix.EXDEV):
			return fmt.Errorf("clone %s: %w: %w", source.Name(), device.ErrNotShared, err)
		case err != nil:
			return fmt.Errorf("clone %s: %w", source.Name(), err)
		}
		// The clone took the place, and the size, of what was reserved.
		err = m.allocateLocked(target, info.Size())
		m.setSharedLocked(to, info.Size())
		return err
	})
}

// withBoth opens the files of an original and of its copy.
func (m *Manager) withBoth(from, to string, flags int, do func(source, target *os.File) error) error {
	source, err := os.Open(m.path(from))
	if err != nil {
		return fmt.Errorf("open the backing file to copy: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(m.path(to), os.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return fmt.Errorf("open the backing file of the copy: %w", err)
	}
	return errors.Join(do(source, target), target.Close())
}

// Unshare implements device.Copier. A block that is shared becomes two when it is written to, and the second one has to
// be there then, as all space of a volume has.
func (m *Manager) Unshare(ctx context.Context, to string, start int64, done func(at int64) error) error {
	target, err := os.OpenFile(m.path(to), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	info, err := target.Stat()
	for at := start; err == nil && at < info.Size(); {
		m.setShared(to, info.Size()-at)
		if err = ctx.Err(); err == nil {
			err = m.unshare(target, at, min(unshareStep, info.Size()-at))
		}
		if at += unshareStep; err == nil {
			err = done(min(at, info.Size()))
		}
	}
	if err == nil {
		m.setShared(to, 0)
	}
	return errors.Join(err, target.Close())
}

// Resume implements device.Copier. How much is still shared is not looked for: until the copy is finished, or deleted,
// all that may be counts.
func (m *Manager) Resume(_ context.Context, to string, start, _ int64) error {
	info, err := os.Stat(m.path(to))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("backing file of an unfinished copy: %w", err)
	}
	m.setShared(to, info.Size()-start)
	return nil
}

// unshare gives a part of a file blocks of its own in place of those that it shares with another, durably.
func (m *Manager) unshare(f *os.File, at, length int64) error {
	if length == 0 {
		return nil // the kernel refuses to unshare nothing
	}
	switch err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_UNSHARE_RANGE, at, length); {
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
