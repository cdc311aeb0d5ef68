// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// copyStep is how much of a device is copied at once, and between two looks at the context.
const copyStep = 4 * volume.MiB

// DeviceCopy copies a block device to the beginning of another one, which nobody else uses and which is not smaller,
// and writes zeros over the rest of that. Neither is read or written through the page cache, which may hold something
// else than the medium of a device that a file system is mounted on. Both can also be the files behind loop devices:
// their page cache is what the devices hold, and what was never written is passed over.
type DeviceCopy struct {
	source, target *os.File
	files          bool
	length, size   int64
	piece, other   []byte
}

// OpenCopy opens both. A device as target is opened exclusively: the kernel refuses one that is mounted, or that
// somebody else holds.
func OpenCopy(from, to string) (_ *DeviceCopy, err error) {
	c := &DeviceCopy{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("copy %s to %s: %w", from, to, err), c.Close())
		}
	}()
	info, err := os.Stat(from)
	if err != nil {
		return c, err
	}
	flags, exclusive := unix.O_DIRECT|unix.O_CLOEXEC, unix.O_EXCL
	if c.files = info.Mode().IsRegular(); c.files {
		flags, exclusive = unix.O_CLOEXEC, 0
	}
	if c.length, err = DeviceLength(from); err != nil {
		return c, err
	}
	if c.size, err = DeviceLength(to); err != nil {
		return c, err
	}
	if c.size < c.length {
		return c, fmt.Errorf("it has %d bytes, which do not fit into %d", c.length, c.size)
	}
	if c.source, err = os.OpenFile(from, os.O_RDONLY|flags, 0); err != nil {
		return c, err
	}
	if c.target, err = os.OpenFile(to, os.O_RDWR|flags|exclusive, 0); err != nil {
		return c, err
	}
	// Anonymous memory is aligned as such devices want it.
	memory, err := unix.Mmap(-1, 0, int(2*copyStep), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return c, fmt.Errorf("memory to copy with: %w", err)
	}
	c.piece, c.other = memory[:copyStep], memory[copyStep:]
	return c, nil
}

// Close lets both devices go.
func (c *DeviceCopy) Close() error {
	var err error
	if c.piece != nil {
		err = unix.Munmap(c.piece[:2*copyStep])
	}
	for _, f := range []*os.File{c.source, c.target} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Size is how many bytes the target has: what Write and Update work through.
func (c *DeviceCopy) Size() int64 { return c.size }

// Sync returns when all that was written is on the medium.
func (c *DeviceCopy) Sync() error { return c.target.Sync() }

// Write copies all of it from a byte on, and says after each step how far it has come; what it says is not on the
// medium yet.
func (c *DeviceCopy) Write(ctx context.Context, start int64, done func(at int64) error) error {
	return c.pass(ctx, start, done, func(piece []byte, at int64) error {
		_, err := c.target.WriteAt(piece, at)
		return err
	})
}

// Update copies what differs, and is done as soon as both were read.
func (c *DeviceCopy) Update(ctx context.Context) error {
	return c.pass(ctx, 0, func(int64) error { return nil }, func(piece []byte, at int64) error {
		other := c.other[:len(piece)]
		if n, err := c.target.ReadAt(other, at); n < len(other) {
			return err
		}
		if bytes.Equal(piece, other) {
			return nil
		}
		_, err := c.target.WriteAt(piece, at)
		return err
	})
}

// pass calls a function for each piece of the target, with what it is to hold.
func (c *DeviceCopy) pass(ctx context.Context, start int64, done func(at int64) error, each func(piece []byte,
	at int64) error) error {
	for at := start; at < c.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if at, err = c.nextData(at); err != nil || at >= c.size {
			return err
		}
		piece := c.piece[:min(copyStep, c.size-at)]
		if at < c.length {
			piece = piece[:min(int64(len(piece)), c.length-at)]
			if n, err := c.source.ReadAt(piece, at); n < len(piece) {
				return fmt.Errorf("read byte %d: %w", at+int64(n), err)
			}
		} else {
			clear(piece)
		}
		if err := each(piece, at); err != nil {
			return fmt.Errorf("copy byte %d: %w", at, err)
		}
		at += int64(len(piece))
		if err := done(at); err != nil {
			return err
		}
	}
	return nil
}

// nextData returns the first byte from one on that either file may have been written at. A device may be written
// anywhere.
func (c *DeviceCopy) nextData(at int64) (int64, error) {
	if !c.files {
		return at, nil
	}
	next := c.size
	for _, f := range []*os.File{c.source, c.target} {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: nothing but a hole is left
			return 0, fmt.Errorf("look for what was written to %s: %w", f.Name(), err)
		}
		if err == nil {
			next = min(next, data)
		}
	}
	return next, nil
}
