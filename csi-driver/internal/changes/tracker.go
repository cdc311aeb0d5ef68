// SPDX-License-Identifier: Apache-2.0

// Package changes finds out which bytes of the device of a mounted file system cannot have changed for some time,
// though programs go on writing to its files: through the kernel, by stores to mapped persistent memory, or by
// relinked blocks.
//
// The kernel sets a file's time of change (st_ctime, which no program without privileges can set) when a call begins
// to change the file, and when a page of it is first stored to after it was last clean. A barrier is a moment in
// which the file system is frozen: every call that was under way has ended, and all pages are clean. So between two
// looks at the files, each followed by a barrier, only those files whose time of change differs can have changed
// since the first barrier. Only files that are large are looked at; all else on the device, the file system's own
// blocks above all, may always have changed.
//
// Where the file system is our own ext4, it marks the units of an open file that change (see marks.go), and of a file
// that has changed only those may have. A change is marked before the barrier behind it; and what is marked is taken
// at a barrier, with the pages clean: a store after it is one that the kernel sees, and marks. This goes on for as long
// as the file is open.
package changes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	// smallest is how many bytes a file has to store to be worth looking at.
	smallest = volume.MiB
	// piece is how long the extents of such a file are on average, at least.
	piece = 64 * 1024
	// mostFiles are looked at, the largest, and mostExtents of them known. Each file is held open: the agents of volumes
	// look through 4096 descriptors of a process at most.
	mostFiles   = 3000
	mostExtents = 1 << 20
	// settled is how long ago a file has to have changed: its time of change is that of the last tick of a clock, and
	// with the next change in that tick it stays the same.
	settled = 2 * time.Second
	// lookLimit is for a look at all files.
	lookLimit = 2 * time.Minute
)

// Tracker looks at the files of one mounted file system. It is for one goroutine.
type Tracker struct {
	root string
	// skip is a directory in the root whose files are never taken for unchanged.
	skip string
	dir  *os.File
	// files are as the last look found them, by inode.
	files map[uint64]*file
}

// file is what a look found.
type file struct {
	handle *os.File
	stored int64 // bytes
	// skipped: it counts as changed always.
	skipped bool
	// resting: it may be at rest, because it has not changed for a while. changed is the time when it did.
	resting bool
	changed unix.Timespec
	// extents is where it lay after the barrier; nil where that is not known, or not worth knowing.
	extents []extent
	// marks are what has changed since the barrier; nil where the kernel does not say.
	marks *marks
}

// New makes a tracker of the file system that is mounted at a directory. The files below skip, a directory in it,
// count as changed always.
func New(root, skip string) (*Tracker, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	return &Tracker{root: root, skip: skip, dir: dir}, nil
}

// Close lets the files go.
func (t *Tracker) Close() error {
	release(t.files)
	return t.dir.Close()
}

// Release closes the files: Frozen needs another Round then. While they are open, programs with the library show what
// they write sooner than they would.
func (t *Tracker) Release() { release(t.files) }

func release(files map[uint64]*file) {
	for _, f := range files {
		if f.handle != nil {
			f.handle.Close() // nothing was written
			f.handle = nil
		}
	}
}

// Round looks at the files, has the caller freeze the file system for an instant and do something meanwhile, and
// returns which bytes of the device are since then what they were at the end of the last round, and which hold
// nothing; the first round knows of these only. Whoever has a copy that was right at the last round, and brings it up
// to date in all other bytes afterwards, has one that will be right as of this round.
func (t *Tracker) Round(ctx context.Context, frozen func(do func(context.Context) error) error) (Ranges, error) {
	files, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	before := t.files
	t.files = files
	err = t.mark(before)
	release(before)
	if err != nil {
		return nil, err
	}
	if err := t.Clean(ctx); err != nil { // most of it while programs go on
		return nil, err
	}
	if err := frozen(t.barrier); err != nil {
		return nil, err
	}
	var same []Range
	extents := 0
	for ino, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.skipped || !f.resting && f.marks == nil {
			continue
		}
		if f.extents, err = f.lies(ctx, mostExtents-extents); err != nil {
			return nil, err
		}
		extents += len(f.extents)
		same = appendRanges(same, before[ino].same(f.changed, f.extents, f.marks))
		if f.marks != nil {
			f.marks.forget() // from here on, what has changed since this barrier
		}
	}
	return t.withFree(ctx, same)
}

// mark has the changes of all files marked, for as long as they are open. A file whose changes are marked since before
// stays open for that.
func (t *Tracker) mark(before map[uint64]*file) (err error) {
	for ino, f := range t.files {
		was := before[ino]
		switch {
		case f.skipped:
		case was != nil && was.marks != nil && was.handle != nil:
			f.handle.Close() // nothing was written
			f.handle, f.marks, was.handle = was.handle, was.marks, nil
		default:
			if f.marks, err = startMarks(int(f.handle.Fd())); err != nil {
				return fmt.Errorf("look at %s: %w", f.handle.Name(), err)
			}
		}
	}
	return nil
}

// Marked says whether the last look found that changes of files are marked: another Round then tells what has changed
// since the last one of files that change all the time, too.
func (t *Tracker) Marked() bool {
	for _, f := range t.files {
		if f.marks != nil {
			return true
		}
	}
	return false
}

// barrier is for a moment in which the file system is frozen: first all that can be stored to is made clean, then what
// has been marked so far is taken.
func (t *Tracker) barrier(ctx context.Context) error {
	if err := t.Clean(ctx); err != nil {
		return err
	}
	for _, f := range t.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.marks == nil || f.handle == nil {
			continue
		}
		if err := f.marks.take(int(f.handle.Fd())); err != nil {
			return fmt.Errorf("look at %s: %w", f.handle.Name(), err)
		}
	}
	return nil
}

// same returns where bytes lie that have not changed since f was looked at: of all of a file that was at rest and has
// the same time of change, else of what is not in the marks made since then, of the same open file.
func (f *file) same(changed unix.Timespec, extents []extent, marked *marks) []extent {
	switch {
	case f == nil:
		return nil
	case f.resting && f.changed == changed && slices.Equal(f.extents, extents):
		return extents
	case marked != nil && f.marks == marked:
		return unchanged(f.extents, extents, marked)
	}
	return nil
}

// Clean makes the next store to any page of the files one that the kernel sees. A frozen file system should have no
// page that can be stored to. But with DAX, when a store by MAP_SYNC finds that the file's blocks are still to be
// committed, the kernel has called the file dirty before and marks the page afterwards: if the file was written back
// between the two, nobody writes it back again.
// Called just before the file system is frozen, too, it leaves less to do then.
func (t *Tracker) Clean(ctx context.Context) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	for _, f := range t.files {
		if f.handle == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := unix.SyncFileRange(int(f.handle.Fd()), 0, 0, all); err != nil {
			return fmt.Errorf("write back %s: %w", f.handle.Name(), err)
		}
	}
	return nil
}

// Frozen returns which bytes are what they were at the end of the last round, and which hold nothing. The file system
// is frozen, and stays so until the copy is up to date.
func (t *Tracker) Frozen(ctx context.Context) (Ranges, error) {
	if err := t.barrier(ctx); err != nil {
		return nil, err
	}
	var same []Range
	for _, f := range t.files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.extents == nil || f.handle == nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.handle.Fd()), &st); err != nil {
			return nil, fmt.Errorf("look at %s: %w", f.handle.Name(), err)
		}
		if st.Ctim != f.changed && f.marks == nil {
			continue
		}
		// Blocks may be moved without a change to what they hold, when a file is defragmented.
		extents, err := f.lies(ctx, mostExtents)
		if err != nil {
			return nil, err
		}
		same = appendRanges(same, f.same(st.Ctim, extents, f.marks))
	}
	return t.withFree(ctx, same)
}

func (t *Tracker) withFree(ctx context.Context, same []Range) (Ranges, error) {
	free, err := freeIn(ctx, int(t.dir.Fd()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.root, err)
	}
	return of(append(same, free...)), nil
}

func appendRanges(to []Range, extents []extent) []Range {
	for _, e := range extents {
		to = append(to, Range{int64(e.physical), int64(e.physical + e.length)})
	}
	return to
}

// lies returns where the file's bytes are, nil where they are in more places than most, or too many to be worth
// knowing.
func (f *file) lies(ctx context.Context, most int) ([]extent, error) {
	// A file that changes has blocks that are still to be found. They count as changed.
	extents, known, err := extentsOf(ctx, int(f.handle.Fd()), min(most, int(f.stored/piece)), f.marks != nil)
	if err != nil || !known {
		return nil, err
	}
	return extents, nil
}
