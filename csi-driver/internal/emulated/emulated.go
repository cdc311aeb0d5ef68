// SPDX-License-Identifier: Apache-2.0

// Package emulated provides devices that stand in for persistent memory: a backing file on a loop device.
//
// The file's space is allocated when the volume is made (fallocate), not when it is written. A sparse file would allow
// a node to promise more than it has, and the bill would be an I/O error below a mounted file system, which the file
// system answers by shutting down. So capacity is honest: what is promised is there.
package emulated

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const imageSuffix = ".img"

// Config says where the backing files are and how much they may take.
type Config struct {
	Dir string
	// Capacity is the most all backing files may take together.
	Capacity int64
	// MinFree stays free on the file system of Dir: it belongs to others as well.
	MinFree int64
}

// Manager is a device.Manager.
type Manager struct {
	config Config
	// mu makes "is there room" and "take it" one step.
	mu sync.Mutex
	// shared is how much of a copy may still be shared with its original. That space looks free and is promised: whichever
	// of the two is written to first takes it.
	shared map[string]int64
}

var (
	_ device.Manager   = (*Manager)(nil)
	_ device.Inventory = (*Manager)(nil)
)

// New returns a manager; the directory is created when it is not there.
func New(config Config) (*Manager, error) {
	if config.Capacity <= 0 {
		return nil, fmt.Errorf("emulated capacity is %d bytes; it must be positive", config.Capacity)
	}
	if config.MinFree < 0 {
		return nil, fmt.Errorf("minimum free space is %d bytes; it must not be negative", config.MinFree)
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of emulated devices: %w", err)
	}
	return &Manager{config: config, shared: map[string]int64{}}, nil
}

// Name implements device.Manager.
func (m *Manager) Name() string { return volume.DeviceEmulated }

// Emulated implements device.Manager.
func (m *Manager) Emulated() bool { return true }

func (m *Manager) path(id string) string { return filepath.Join(m.config.Dir, id+imageSuffix) }

// Check implements device.Manager.
func (m *Manager) Check(context.Context) error {
	if err := unix.Access(m.config.Dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("directory of emulated devices %s: %w", m.config.Dir, err)
	}
	if err := unix.Access("/dev/loop-control", unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("/dev/loop-control: %w (load the loop module on the node)", err)
	}
	return nil
}

// Available implements device.Manager.
func (m *Manager) Available(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.availableLocked()
}

// Regions implements device.Inventory: the directory of the backing files.
func (m *Manager) Regions(ctx context.Context) ([]device.Region, error) {
	available, err := m.Available(ctx)
	if err != nil {
		return nil, err
	}
	return []device.Region{{Name: m.config.Dir, Type: "directory", Capacity: m.config.Capacity, Available: available}}, nil
}

func (m *Manager) availableLocked() (int64, error) {
	used, holes, err := m.used()
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.config.Dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", m.config.Dir, err)
	}
	free := int64(st.Bavail)*st.Bsize - m.config.MinFree - holes
	for _, bytes := range m.shared {
		free -= bytes
	}
	return max(0, min(m.config.Capacity-used, free)), nil
}

// used counts every backing file, also one whose state is gone: its space is taken all the same. holes is what volumes'
// users have discarded: the file system of Dir has it back, and it is promised as before.
func (m *Manager) used() (used, holes int64, err error) {
	entries, err := os.ReadDir(m.config.Dir)
	if err != nil {
		return 0, 0, fmt.Errorf("list emulated devices: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), imageSuffix) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since
		}
		if err != nil {
			return 0, 0, fmt.Errorf("list emulated devices: %w", err)
		}
		used += info.Size()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			holes += max(0, info.Size()-st.Blocks*512)
		}
	}
	return used, holes, nil
}

// Create implements device.Manager.
func (m *Manager) Create(_ context.Context, id string, size int64) error {
	f, err := os.OpenFile(m.path(id), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create backing file: %w", err)
	}
	return errors.Join(m.allocate(f, size), f.Close())
}

// Grow implements device.Manager.
func (m *Manager) Grow(_ context.Context, id string, size int64) error {
	f, err := os.OpenFile(m.path(id), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open backing file: %w", err)
	}
	if err := errors.Join(m.allocate(f, size), f.Close()); err != nil {
		return err
	}
	dev, err := loop.Find(m.path(id))
	if err != nil || dev == "" {
		return err
	}
	return loop.Resize(dev)
}

// allocate takes the space of a file up to size and makes that durable. A file that is larger keeps its size, and
// allocating a range again is harmless, so a call that was interrupted can be repeated.
func (m *Manager) allocate(f *os.File, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocateLocked(f, size)
}

func (m *Manager) allocateLocked(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("backing file %s: %w", f.Name(), err)
	}
	old := info.Size()
	if missing := size - old; missing > 0 {
		available, err := m.availableLocked()
		if err != nil {
			return err
		}
		if missing > available {
			return fmt.Errorf(
				"%w for an emulated device on this node: %s more are needed, %s are available (capacity %s, %s kept free in %s)",
				volume.ErrExhausted, human(missing), human(available), human(m.config.Capacity), human(m.config.MinFree),
				m.config.Dir)
		}
	}
	switch err := inSteps(size, allocateStep, func(at, length int64) error {
		return unix.Fallocate(int(f.Fd()), 0, at, length)
	}); {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return errors.Join(fmt.Errorf("%w in %s: %w", volume.ErrExhausted, m.config.Dir, err), f.Truncate(old))
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf(
			"the file system of %s cannot reserve space (fallocate): put emulated devices on ext4, xfs, btrfs or tmpfs",
			m.config.Dir)
	case err != nil:
		return fmt.Errorf("allocate %d bytes for %s: %w", size, f.Name(), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return volume.SyncDir(m.config.Dir)
}

// allocateStep is how much of a file is allocated at once. XFS wants as much free space as it is asked to allocate,
// also where all of it is allocated already, and there may be less than the file has.
const allocateStep = 64 * volume.MiB

// inSteps does something to one part after the other of a file of this size.
func inSteps(size, step int64, do func(at, length int64) error) error {
	for at := int64(0); at < size; at += step {
		if err := do(at, min(step, size-at)); err != nil {
			return err
		}
	}
	return nil
}

// Attach implements device.Manager.
func (m *Manager) Attach(ctx context.Context, id string) (string, error) {
	return loop.Attach(ctx, m.path(id))
}

// Detach implements device.Manager.
func (m *Manager) Detach(ctx context.Context, id string) error { return loop.Detach(ctx, m.path(id)) }

// Delete implements device.Manager.
func (m *Manager) Delete(ctx context.Context, id string) error {
	if err := m.Detach(ctx, id); err != nil {
		return err
	}
	if err := volume.RemoveIfThere(m.path(id)); err != nil {
		return fmt.Errorf("remove backing file: %w", err)
	}
	m.setShared(id, 0)
	return volume.SyncDir(m.config.Dir)
}

func human(n int64) string {
	return resource.NewQuantity(n/volume.MiB*volume.MiB, resource.BinarySI).String()
}
