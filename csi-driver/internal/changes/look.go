// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func stored(st *unix.Stat_t) int64 { return st.Blocks * 512 }

// look opens the largest files and notes when they have changed. Somebody may have to answer for each open, and a copy
// does not wait for ever for who does not.
func (t *Tracker) look(ctx context.Context) (map[uint64]*file, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	type found struct {
		files map[uint64]*file
		err   error
	}
	done := make(chan found, 1)
	go func() {
		files, err := t.open(ctx)
		done <- found{files, err}
	}()
	select {
	case f := <-done:
		return f.files, f.err
	case <-ctx.Done():
		go func() { release((<-done).files) }()
		return nil, fmt.Errorf("look at the files of %s: %w", t.root, ctx.Err())
	}
}

// candidate is a file by its path in the root: a large one, or one of those that always count as changed.
type candidate struct {
	path    string
	stored  int64
	skipped bool
}

func (t *Tracker) open(ctx context.Context) (map[uint64]*file, error) {
	large, err := t.large(ctx)
	if err != nil {
		return nil, err
	}
	files := map[uint64]*file{}
	for _, c := range large {
		if err := ctx.Err(); err != nil {
			release(files)
			return nil, err
		}
		f, ino, err := t.openOne(c.path)
		switch {
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			release(files) // to thaw takes a descriptor, too
			return nil, fmt.Errorf("open %s: %w", c.path, err)
		case err != nil: // it is gone, or has a lease
			continue
		case files[ino] != nil: // another name of it
			f.handle.Close() // nothing was written
		default:
			f.skipped = c.skipped
			f.resting = f.resting && !c.skipped
			files[ino] = f
		}
	}
	return files, nil
}

// large returns the files that are worth looking at.
func (t *Tracker) large(ctx context.Context) ([]candidate, error) {
	var large []candidate
	err := filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		if errStop := ctx.Err(); errStop != nil {
			return errStop
		}
		name, errName := filepath.Rel(t.root, path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
			return nil
		case err != nil || errName != nil:
			return errors.Join(err, errName)
		case !d.Type().IsRegular():
			return nil
		}
		skipped := strings.HasPrefix(name, t.skip+"/")
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err == nil && (skipped || stored(&st) >= smallest) {
			large = append(large, candidate{name, stored(&st), skipped})
		}
		if len(large) == 2*mostFiles {
			large = largest(large)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the files of %s: %w", t.root, err)
	}
	return largest(large), nil
}

// largest leaves mostFiles. Those that always count as changed come first: they have to be cleaned.
func largest(files []candidate) []candidate {
	slices.SortFunc(files, func(a, b candidate) int {
		switch {
		case a.skipped && !b.skipped:
			return -1
		case b.skipped && !a.skipped:
			return 1
		}
		return cmp.Compare(b.stored, a.stored)
	})
	return files[:min(len(files), mostFiles)]
}

// openOne opens a file.
func (t *Tracker) openOne(path string) (*file, uint64, error) {
	var st unix.Stat_t
	// Whatever a program has put there since, it is opened only if it is a file of this file system.
	found, err := unix.Openat2(int(t.dir.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(found)
	if err := unix.Fstat(found, &st); err != nil {
		return nil, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, 0, unix.ENOENT
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	f := &file{handle: os.NewFile(uintptr(fd), path)}
	// Opening it may have brought what a program had staged into it.
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, errors.Join(err, f.handle.Close())
	}
	f.stored, f.changed = stored(&st), st.Ctim
	f.resting = time.Since(time.Unix(st.Ctim.Unix())) >= settled
	return f, st.Ino, nil
}
