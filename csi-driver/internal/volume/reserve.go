// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// reserveName is no name of a record, and none of an unfinished file.
	reserveName = ".reserve"
	// reserveBytes is enough for a file and its name: XFS wants some dozen blocks for them at first, though it takes few.
	reserveBytes = MiB
)

// Reserve is space that a directory keeps. On a file system that is full nothing new can be written down, and nothing
// is begun. But the end of the use of a volume must be written down all the same: pods could not be taken down
// otherwise, nor space given back by deleting volumes. The same holds for what keeps volumes served that are in use.
type Reserve struct {
	mu   sync.Mutex
	path string
}

// NewReserve returns the reserve of a directory, which Keep takes.
func NewReserve(dir string) *Reserve { return &Reserve{path: filepath.Join(dir, reserveName)} }

// Keep takes the space, unless it is there. That there is none to take is what the reserve is for: no error.
func (r *Reserve) Keep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keep()
}

func (r *Reserve) keep() error {
	if _, err := os.Lstat(r.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := r.path + ".tmp"
	err := allocate(fresh, reserveBytes)
	if err == nil {
		err = os.Rename(fresh, r.path)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, RemoveIfThere(fresh))
	if isFull(err) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return fmt.Errorf("keep space for the end of volumes: %w", err)
}

// Use does something that needs little space, which can be done again when it failed. Where there is no space it has
// that of the reserve.
func (r *Reserve) Use(do func() error) error {
	err := do()
	if !isFull(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if os.Remove(r.path) == nil {
		err = do()
	}
	return errors.Join(err, r.keep())
}

func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// RoomError says what is to be done when the file system of a directory of the node service is full.
func RoomError(dir string, err error) error {
	if !isFull(err) || errors.Is(err, ErrExhausted) {
		return err
	}
	return fmt.Errorf("%w in %s: %w. Make room on this file system of the node; what was written there before stays as "+
		"it is", ErrExhausted, dir, err)
}
