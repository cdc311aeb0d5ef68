// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/changes"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// copyStep is how much of a device is copied at once, and between two looks at the context.
const copyStep = 4 * volume.MiB

// mostLookers compare parts of a device at the same time: one processor does not read memory as fast as that is.
const mostLookers = 4

// DeviceCopy copies a block device to the beginning of another one, which nobody else uses and which is not smaller,
// and writes zeros over the rest of that. Neither is read or written through the page cache, which may hold something
// else than the medium of a device that a file system is mounted on. Both can also be the files behind loop devices:
// their page cache is what the devices hold, and what was never written is passed over.
type DeviceCopy struct {
	source, target *os.File
	files          bool
	length, size   int64
}

// looker is who compares a part of both: a piece of the one, and of the other.
type looker struct{ piece, other []byte }

func newLooker() (*looker, error) {
	// Anonymous memory is aligned as such devices want it.
	memory, err := unix.Mmap(-1, 0, int(2*copyStep), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory to copy with: %w", err)
	}
	return &looker{memory[:copyStep], memory[copyStep:]}, nil
}

func (l *looker) end() error { return unix.Munmap(l.piece[:2*copyStep]) }

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
	return c, nil
}

// Close lets both devices go.
func (c *DeviceCopy) Close() error {
	var err error
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
func (c *DeviceCopy) Write(ctx context.Context, start int64, done func(at int64) error) (err error) {
	l, err := newLooker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	return c.pieces(ctx, start, nil, func(part changes.Range) error {
		piece, err := c.read(l, part)
		if err != nil {
			return err
		}
		if err := c.write(piece, part.From); err != nil {
			return err
		}
		return done(part.End)
	})
}

// Update copies what differs, but for parts that are known to be the same or whose content does not matter, and is
// done as soon as both were read. It returns how many bytes were looked at.
func (c *DeviceCopy) Update(ctx context.Context, known changes.Ranges) (int64, error) {
	var looked atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	parts := make(chan changes.Range)
	group.Go(func() error {
		defer close(parts)
		return c.pieces(ctx, 0, known, func(part changes.Range) error {
			select {
			case parts <- part:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	for range min(mostLookers, runtime.NumCPU()) {
		group.Go(func() (err error) {
			l, err := newLooker()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.end()) }()
			for part := range parts {
				if err := c.updatePart(l, part); err != nil {
					return err
				}
				looked.Add(part.End - part.From)
			}
			return nil
		})
	}
	err := group.Wait()
	return looked.Load(), err
}

func (c *DeviceCopy) updatePart(l *looker, part changes.Range) error {
	piece, err := c.read(l, part)
	if err != nil {
		return err
	}
	other := l.other[:len(piece)]
	if n, err := c.target.ReadAt(other, part.From); n < len(other) {
		return fmt.Errorf("read byte %d of the copy: %w", part.From+int64(n), err)
	}
	if bytes.Equal(piece, other) {
		return nil
	}
	return c.write(piece, part.From)
}

func (c *DeviceCopy) write(piece []byte, at int64) error {
	if _, err := c.target.WriteAt(piece, at); err != nil {
		return fmt.Errorf("copy byte %d: %w", at, err)
	}
	return nil
}

// read returns what a part of the target is to hold: the source's bytes, or the zeros behind them.
func (c *DeviceCopy) read(l *looker, part changes.Range) ([]byte, error) {
	piece := l.piece[:part.End-part.From]
	if part.From >= c.length {
		clear(piece)
		return piece, nil
	}
	if n, err := c.source.ReadAt(piece, part.From); n < len(piece) {
		return nil, fmt.Errorf("read byte %d: %w", part.From+int64(n), err)
	}
	return piece, nil
}

// pieces calls a function for one part after the other of what is in no known range.
func (c *DeviceCopy) pieces(
	ctx context.Context,
	start int64,
	known changes.Ranges,
	each func(changes.Range) error,
) error {
	for at := start; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := c.nextData(at)
		if err != nil {
			return err
		}
		part := known.Gap(next, c.size)
		if part.From >= c.size {
			return nil
		}
		if part.From > next { // there may be a hole as well
			at = part.From
			continue
		}
		part.End = min(part.End, part.From+copyStep)
		if part.From < c.length {
			part.End = min(part.End, c.length)
		}
		if err := each(part); err != nil {
			return err
		}
		at = part.End
	}
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
