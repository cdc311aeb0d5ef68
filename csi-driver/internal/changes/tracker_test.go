// SPDX-License-Identifier: Apache-2.0

package changes_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/changes"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	imageSize = 512 * volume.MiB
	files     = 12
	fileSize  = 3 * volume.MiB
	// ourExt4 is ext4 with our module, which says which ranges of a file change.
	ourExt4 = "ext4_splitfs"
)

// copied is a file system in use and a copy of its device: on loop devices, or on the two devices of persistent
// memory that SPLITFS_TEST_MEMORY names, which are overwritten.
type copied struct {
	*testing.T
	image, root, copy string
	size              int64
	dax               bool
	tracker           *changes.Tracker
	pair              *filesystem.DeviceCopy
}

func (c *copied) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *copied) run(name string, args ...string) {
	c.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		c.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// needs skips what this kernel has no module for.
func needs(t *testing.T, fsType string) {
	t.Helper()
	if known, err := os.ReadFile("/proc/filesystems"); fsType == ourExt4 &&
		(err != nil || !bytes.Contains(known, []byte("\t"+ourExt4+"\n"))) {
		t.Skipf("there is no file system %s (%v)", ourExt4, err)
	}
}

func newCopied(t *testing.T, fsType string) *copied {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	dir := t.TempDir()
	c := &copied{T: t, root: filepath.Join(dir, "root")}
	options := "loop"
	if memory := strings.Fields(os.Getenv("SPLITFS_TEST_MEMORY")); len(memory) == 2 {
		c.image, c.copy, c.dax, options = memory[0], memory[1], true, "dax"
	} else {
		c.image, c.copy = filepath.Join(dir, "image"), filepath.Join(dir, "copy")
		c.must(errors.Join(os.WriteFile(c.image, nil, 0o600), os.WriteFile(c.copy, nil, 0o600)))
		c.must(errors.Join(os.Truncate(c.image, imageSize), os.Truncate(c.copy, imageSize)))
	}
	c.must(os.Mkdir(c.root, 0o700))
	var errSize error
	c.size, errSize = filesystem.DeviceLength(c.image)
	c.must(errSize)
	mkfs := map[string][]string{
		volume.XFS: {"-f"},
		// Small memory would get smaller blocks, which DAX does not take; and little besides the files is always looked at.
		volume.Ext4: {"-F", "-b", "4096", "-J", "size=8", "-N", "4096"},
	}
	made := strings.TrimSuffix(fsType, "_splitfs")
	c.run("mkfs."+made, slices.Concat([]string{"-q"}, mkfs[made], []string{c.image})...)
	c.run("mount", "-t", fsType, "-o", options, c.image, c.root)
	t.Cleanup(func() { c.run("umount", c.root) })
	var err error
	c.tracker, err = changes.New(c.root, ".skipped")
	c.must(err)
	t.Cleanup(func() { c.must(c.tracker.Close()) })
	c.pair, err = filesystem.OpenCopy(c.image, c.copy)
	c.must(err)
	t.Cleanup(func() { c.must(c.pair.Close()) })
	return c
}

// frozen does something in a moment in which nobody writes.
func (c *copied) frozen(do func(context.Context) error) error {
	return errors.Join(filesystem.Sync(c.root), filesystem.Freeze(c.root), do(context.Background()),
		filesystem.Thaw(c.root))
}

func (c *copied) round() changes.Ranges {
	c.Helper()
	known, err := c.tracker.Round(context.Background(), c.frozen)
	c.must(err)
	return known
}

// cut brings the copy up to date while the file system is frozen, and compares all of it but for what is free.
func (c *copied) cut() (looked int64) {
	c.Helper()
	c.must(errors.Join(filesystem.Sync(c.root), filesystem.Freeze(c.root)))
	defer func() { c.must(filesystem.Thaw(c.root)) }()
	known, err := c.tracker.Frozen(context.Background())
	c.must(err)
	looked, err = c.pair.Update(context.Background(), known)
	c.must(err)
	dir, err := os.Open(c.root)
	c.must(err)
	defer dir.Close()
	free, err := changes.FreeIn(int(dir.Fd()))
	c.must(err)
	if free.Bytes() < c.size/4 {
		c.Errorf("only %d bytes are free", free.Bytes())
	}
	// Past the page cache, which may hold something else than the medium.
	flags := os.O_RDONLY
	if c.dax {
		flags |= unix.O_DIRECT
	}
	source, err := os.OpenFile(c.image, flags, 0)
	c.must(err)
	defer source.Close()
	target, err := os.OpenFile(c.copy, flags, 0)
	c.must(err)
	defer target.Close()
	memory, err := unix.Mmap(-1, 0, int(2*volume.MiB), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	c.must(err)
	defer func() { c.must(unix.Munmap(memory)) }()
	for at := int64(0); ; {
		part := free.Gap(at, c.size)
		if part.From >= c.size {
			return looked
		}
		part.End = min(part.End, part.From+volume.MiB)
		one, other := memory[:part.End-part.From], memory[volume.MiB:volume.MiB+part.End-part.From]
		_, errOne := source.ReadAt(one, part.From)
		_, errOther := target.ReadAt(other, part.From)
		c.must(errors.Join(errOne, errOther))
		if !bytes.Equal(one, other) {
			c.Fatalf("the copy is not right between byte %d and %d", part.From, part.End)
		}
		at = part.End
	}
}

func (c *copied) path(i int) string { return filepath.Join(c.root, fmt.Sprintf("file-%d", i)) }

func (c *copied) fill(path string, size int64) {
	c.Helper()
	b := make([]byte, size)
	for at := 0; at+8 <= len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], rand.Uint64())
	}
	c.must(os.WriteFile(path, b, 0o600))
}

// TestWritersGoOn: whatever programs do to files, at whatever moment, the copy is right in the end, and what is not in
// use is not looked at.
func TestWritersGoOn(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4, ourExt4} {
		t.Run(fsType, func(t *testing.T) {
			needs(t, fsType)
			if os.Getenv("SPLITFS_TEST_MEMORY") == "" {
				t.Parallel()
			}
			c := newCopied(t, fsType)
			for i := range files {
				c.fill(c.path(i), fileSize)
			}
			c.fill(filepath.Join(c.root, "idle"), 64*volume.MiB)
			stop := c.writers()
			defer stop()
			time.Sleep(2200 * time.Millisecond)
			c.round()
			c.tracker.Release()
			c.must(c.pair.Write(context.Background(), 0, func(int64) error { return nil }))
			for range 6 {
				time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond)
				known := c.round()
				_, err := c.pair.Update(context.Background(), known)
				c.must(err)
				time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
				if fsType != volume.XFS && !c.dax { // blocks move, and no time changes
					c.run("e4defrag", c.path(rand.IntN(files/2)))
				}
				if looked := c.cut(); looked > c.size/4 {
					t.Errorf("%d MiB were looked at with the file system frozen", looked/volume.MiB)
				}
			}
		})
	}
}

// writers change files now and then, each in another way. Half of them rest for longer than a look asks for.
func (c *copied) writers() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range files {
		all.Go(func() {
			f, err := os.OpenFile(c.path(i), os.O_RDWR, 0)
			if err != nil {
				c.Error(err)
				return
			}
			defer f.Close()
			mapped, err := c.mapped(i, volume.MiB)
			if err != nil {
				c.Error(err)
				return
			}
			for ctx.Err() == nil {
				if err := c.change(i, f, mapped); err != nil {
					c.Errorf("file %d: %v", i, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rand.IntN(5000)) * time.Millisecond):
				}
			}
			if err := mapped.end(); err != nil {
				c.Error(err)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// mapping is another process that has the first bytes of a file mapped. A thread of this one that waits for a
// frozen file system in a store, and not in a system call, would keep the garbage collector waiting.
type mapping struct {
	process *exec.Cmd
	stdin   io.WriteCloser
}

func (c *copied) mapped(i int, length int64) (mapping, error) {
	m := mapping{process: exec.Command("xfs_io", c.path(i))}
	var err error
	if m.stdin, err = m.process.StdinPipe(); err != nil {
		return m, err
	}
	if err := m.process.Start(); err != nil {
		return m, err
	}
	if c.dax {
		return m, m.say("mmap -rwS 0 %d", length) // MAP_SYNC
	}
	return m, m.say("mmap -rw 0 %d", length)
}

func (m mapping) say(format string, args ...any) error {
	_, err := fmt.Fprintf(m.stdin, format+"\n", args...)
	return err
}

func (m mapping) end() error { return errors.Join(m.stdin.Close(), m.process.Wait()) }

func (c *copied) change(i int, f *os.File, mapped mapping) error {
	data := bytes.Repeat([]byte{byte(rand.Uint32())}, 1+rand.IntN(100_000))
	at := rand.Int64N(fileSize)
	switch how := rand.IntN(10); {
	case how < 3: // the first megabyte is never cut off
		at %= volume.MiB
		return mapped.say("mwrite -S %d %d %d", data[0], at, min(int64(len(data)), volume.MiB-at))
	case how < 6:
		_, err := f.WriteAt(data, at)
		return err
	case how < 7:
		return f.Truncate(volume.MiB + at)
	case how < 8:
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(len(data)))
	case how < 9: // a new file, which may get blocks that were another's
		other := fmt.Sprintf("%s.new", c.path(i))
		return errors.Join(
			os.WriteFile(other, bytes.Repeat(data, 1+rand.IntN(30)), 0o600),
			os.Rename(other, c.path(i)+".old"),
		)
	default: // one that has no name any more
		gone, err := os.CreateTemp(c.root, "gone")
		if err != nil {
			return err
		}
		_, err = gone.Write(bytes.Repeat(data, 20))
		return errors.Join(err, os.Remove(gone.Name()), gone.Close())
	}
}

// TestNothingChanges: of files at rest nothing is looked at again, whatever their names; of those in the directory
// that is passed over everything is.
func TestNothingChanges(t *testing.T) {
	c := newCopied(t, volume.Ext4) // whose journal is smaller
	const large = 64 * volume.MiB
	c.fill(filepath.Join(c.root, "one"), large)
	c.must(os.Link(filepath.Join(c.root, "one"), filepath.Join(c.root, "another name of one")))
	c.must(os.Mkdir(filepath.Join(c.root, ".skipped"), 0o700))
	c.fill(filepath.Join(c.root, ".skipped", "log"), large)
	c.must(unix.Mkfifo(filepath.Join(c.root, "fifo"), 0o600))
	c.must(os.Symlink("/dev/zero", filepath.Join(c.root, "link")))
	time.Sleep(2200 * time.Millisecond)
	c.round()
	c.must(c.pair.Write(context.Background(), 0, func(int64) error { return nil }))
	looked, err := c.pair.Update(context.Background(), c.round())
	c.must(err)
	for _, n := range []int64{looked, c.cut()} {
		if n < large || n > large+large/2 {
			t.Errorf("%d MiB were looked at, of which %d may have changed", n/volume.MiB, large/volume.MiB)
		}
	}
}

// TestSameTick: a file that changed just before the look may change again without another time of change.
func TestSameTick(t *testing.T) {
	c := newCopied(t, volume.Ext4)
	c.fill(c.path(0), fileSize)
	f, err := os.OpenFile(c.path(0), os.O_RDWR, 0)
	c.must(err)
	defer f.Close()
	c.must(f.Sync())
	for range 100 { // where the clock goes on each time, changes can be told apart
		_, err := f.WriteAt([]byte("before"), 0)
		c.must(err)
		before := c.stat(f)
		_, err = c.tracker.Round(context.Background(), func(do func(context.Context) error) error {
			return do(context.Background())
		})
		c.must(err)
		_, err = f.WriteAt([]byte("after"), 0)
		c.must(err)
		if c.stat(f).Ctim == before.Ctim && c.tracker.Knows(before.Ino) {
			t.Fatal("a file that has changed again is taken for unchanged")
		}
	}
}

func (c *copied) stat(f *os.File) (st unix.Stat_t) {
	c.Helper()
	c.must(unix.Fstat(int(f.Fd()), &st))
	return st
}

// TestBlocksMove: a file whose blocks have moved since, without a change to its bytes, is not the same on the device.
func TestBlocksMove(t *testing.T) {
	c := newCopied(t, volume.Ext4)
	if c.dax {
		t.Skip("ext4 moves no blocks of files that are accessed directly")
	}
	var both [2]*os.File
	for i := range both {
		f, err := os.Create(c.path(i))
		c.must(err)
		defer f.Close()
		both[i] = f
	}
	for range 2 * fileSize / (256 << 10) { // in turns, so that each is in pieces
		for _, f := range both {
			_, err := f.Write(bytes.Repeat([]byte("x"), 256<<10))
			c.must(errors.Join(err, f.Sync()))
		}
	}
	time.Sleep(2200 * time.Millisecond)
	c.round()
	before, was := c.stat(both[0]), c.lies(both[0])
	if !c.tracker.Knows(before.Ino) {
		t.Fatalf("nothing is known of a file at %v", was)
	}
	c.run("e4defrag", c.path(0))
	c.must(filesystem.Sync(c.root))
	now := c.lies(both[0])
	if c.stat(both[0]).Ctim != before.Ctim || len(now) == len(was) {
		t.Fatalf(
			"no block has moved, or a time did: changed at %v and now %v, was at %v and is at %v",
			before.Ctim,
			c.stat(both[0]).Ctim,
			was,
			now,
		)
	}
	known, err := c.tracker.Frozen(context.Background())
	c.must(err)
	for _, part := range now {
		if gap := known.Gap(part.From, part.End); gap != part {
			t.Errorf("of %v all but %v is taken for unchanged", part, gap)
		}
	}
}

func (c *copied) lies(f *os.File) changes.Ranges {
	c.Helper()
	at, err := changes.Lies(int(f.Fd()))
	c.must(err)
	return at
}

// TestContextEnds: a round ends with its context.
func TestContextEnds(t *testing.T) {
	c := newCopied(t, volume.XFS)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.tracker.Round(ctx, c.frozen); !errors.Is(err, context.Canceled) {
		t.Errorf("a round without time: %v", err)
	}
}
