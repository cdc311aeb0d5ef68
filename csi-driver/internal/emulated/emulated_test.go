// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func newManager(t *testing.T, capacity int64) *Manager {
	t.Helper()
	m, err := New(Config{Dir: t.TempDir(), Capacity: capacity})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func allocated(t *testing.T, path string) (size, onDisk int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Size, st.Blocks * 512
}

// TestSpaceIsReallyThere: capacity is honest, because the file's space is taken at once.
func TestSpaceIsReallyThere(t *testing.T) {
	ctx, m := context.Background(), newManager(t, 100*volume.MiB)
	for range 2 {
		if err := m.Create(ctx, "a", 40*volume.MiB); err != nil {
			t.Fatal(err)
		}
	}
	if size, onDisk := allocated(t, m.path("a")); size != 40*volume.MiB || onDisk < size {
		t.Errorf("size %d, on disk %d", size, onDisk)
	}
	for range 2 {
		if err := m.Grow(ctx, "a", 60*volume.MiB); err != nil {
			t.Fatal(err)
		}
	}
	if size, onDisk := allocated(t, m.path("a")); size != 60*volume.MiB || onDisk < size {
		t.Errorf("after growing: size %d, on disk %d", size, onDisk)
	}
	if err := m.Grow(ctx, "a", 10*volume.MiB); err != nil {
		t.Fatal(err)
	}
	if size, _ := allocated(t, m.path("a")); size != 60*volume.MiB {
		t.Errorf("it shrank to %d", size)
	}
	if available, err := m.Available(ctx); err != nil || available != 40*volume.MiB {
		t.Errorf("%d available, %v", available, err)
	}
	if err := m.Grow(ctx, "a", 101*volume.MiB); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("growing beyond the capacity: %v", err)
	}
	if size, _ := allocated(t, m.path("a")); size != 60*volume.MiB {
		t.Errorf("a refused expansion left %d bytes", size)
	}
	for range 2 {
		if err := m.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if available, err := m.Available(ctx); err != nil || available != 100*volume.MiB {
		t.Errorf("%d available after deleting, %v", available, err)
	}
}

// TestConcurrentCreatesDoNotOvercommit: ten ask for a third each; three get it.
func TestConcurrentCreatesDoNotOvercommit(t *testing.T) {
	ctx, m := context.Background(), newManager(t, 90*volume.MiB)
	var wg sync.WaitGroup
	results := make([]error, 10)
	for i := range results {
		wg.Go(func() { results[i] = m.Create(ctx, string(rune('a'+i)), 30*volume.MiB) })
	}
	wg.Wait()
	made := 0
	for _, err := range results {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, volume.ErrExhausted):
			t.Error(err)
		}
	}
	if made != 3 {
		t.Errorf("%d devices were made", made)
	}
}

func TestMinFree(t *testing.T) {
	m, err := New(Config{Dir: t.TempDir(), Capacity: 1 << 60, MinFree: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	if available, err := m.Available(context.Background()); err != nil || available != 0 {
		t.Errorf("%d available, %v", available, err)
	}
	if err := m.Create(context.Background(), "a", volume.MiB); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("create: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{Capacity: 0}, {Capacity: -1}, {Capacity: 1, MinFree: -1}} {
		c.Dir = t.TempDir()
		if _, err := New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if _, err := New(Config{Dir: "/proc/nothing", Capacity: 1}); err == nil || errors.Is(err, os.ErrExist) {
		t.Errorf("a directory that cannot be made: %v", err)
	}
}

// TestHidden: while the directory cannot be looked at, no backing file is said to be gone.
func TestHidden(t *testing.T) {
	ctx, m := context.Background(), newManager(t, 100*volume.MiB)
	id := volume.IDFromName("hidden")
	if err := m.Delete(ctx, id); err != nil {
		t.Errorf("a backing file that is not there: %v", err)
	}
	for what, replace := range map[string]func() error{
		"no directory": func() error { return nil },
		"a file":       func() error { return os.WriteFile(m.config.Dir, nil, 0o600) },
	} {
		if err := errors.Join(os.RemoveAll(m.config.Dir), replace()); err != nil {
			t.Fatal(err)
		}
		if err := m.Delete(ctx, id); err == nil {
			t.Errorf("%s: the backing file is said to be deleted", what)
		}
		if err := m.Erase(ctx, id, volume.EraseOverwrite); err == nil {
			t.Errorf("%s: the backing file is said to be erased", what)
		}
		if found, err := m.List(ctx); err == nil {
			t.Errorf("%s: it lists %v", what, found)
		}
	}
}
