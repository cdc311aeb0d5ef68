// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestLibraryVersions: an upgrade changes what programs load from now on, not what a running process has mapped; the
// old version goes when that process has ended.
func TestLibraryVersions(t *testing.T) {
	dir := t.TempDir()
	l := library{source: filepath.Join(dir, "image.so"), dir: filepath.Join(dir, "inject"), seen: newSightings()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	release := func(code string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-x", "c", "-o", l.source, "-")
		cmd.Stdin = strings.NewReader(code)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("compile: %v\n%s", err, output)
		}
		must(l.install())
		version, err := filepath.EvalSymlinks(l.path())
		must(err)
		return filepath.Base(filepath.Dir(version))
	}
	must(l.prepareDirs())
	must(os.WriteFile(l.path(), []byte("a version before there were versions"), 0o755))

	first := release("int first;")
	program := exec.Command("sleep", "1000")
	program.Env = []string{"LD_PRELOAD=" + l.path()}
	must(program.Start())
	t.Cleanup(func() {
		program.Process.Kill() //nolint:errcheck // it may have ended
		program.Wait()         //nolint:errcheck // it was killed
	})
	// A test may not look into every process of the machine it runs on.
	proc := t.TempDir()
	must(os.Symlink(fmt.Sprintf("/proc/%d", program.Process.Pid), filepath.Join(proc, strconv.Itoa(program.Process.Pid))))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		mapped, err := mappedVersions(proc)
		must(err)
		if mapped[first] {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program did not load the library")
		}
	}
	before, err := os.Stat(filepath.Join(l.dir, first, libraryName))
	must(err)

	second := release("int second;")
	if second == first {
		t.Fatal("the second release is the first")
	}
	if again := release("int second;"); again != second {
		t.Errorf("the same library became version %s, was %s", again, second)
	}
	if removed, err := l.removeUnused(proc, time.Hour); err != nil || len(removed) != 0 {
		t.Errorf("removed %v (%v) at once", removed, err)
	}
	if removed, err := l.removeUnused(proc, 0); err != nil || len(removed) != 0 {
		t.Errorf("removed %v (%v) while it is mapped", removed, err)
	}
	after, err := os.Stat(filepath.Join(l.dir, first, libraryName))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("the version that a process uses was touched (%v)", err)
	}

	must(program.Process.Kill())
	program.Wait() //nolint:errcheck // it was killed
	if removed, err := l.removeUnused(proc, 0); err != nil || len(removed) != 1 || removed[0] != first {
		t.Errorf("removed %v (%v), want %s", removed, err, first)
	}
	if restored, err := l.ready(); err != nil || restored {
		t.Errorf("the current version: %v %v", restored, err)
	}
	if info, err := os.Stat(filepath.Join(l.dir, second)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("other users cannot look into it: %v %v", info, err)
	}
}
