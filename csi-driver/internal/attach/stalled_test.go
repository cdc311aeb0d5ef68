// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stalledFUSE mounts a FUSE file system whose server never answers.
func (n *node) stalledFUSE(name string) string {
	n.t.Helper()
	dir := filepath.Join(n.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		n.t.Skipf("/dev/fuse: %v", err)
	}
	if err := unix.Mount("stalled", dir, "fuse", 0,
		fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", server)); err != nil {
		n.t.Skipf("mount a FUSE file system: %v", err)
	}
	n.t.Cleanup(func() {
		// Who waits for an answer is let go when there is no server any more.
		if err := unix.Close(server); err != nil {
			n.t.Error(err)
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			n.t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// TestStalledFiles: a process has a file of the volume open, and one on a file system that does not answer. The look at
// it ends, and finds the first.
func TestStalledFiles(t *testing.T) {
	n, vol := newNode(t)
	stalled := n.stalledFUSE("stalled")
	program := n.compile(filepath.Join(n.dir, "program"), waits)
	file, err := os.Create(filepath.Join(n.volume, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hangs, err := unix.Open(stalled, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.ExtraFiles = []*os.File{file, os.NewFile(uintptr(hangs), stalled)}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // Wait reports what became of it
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	volumes := source{vol}
	v := New(Config{Source: &volumes, Events: &recorder{}, Proc: "/proc", Library: n.library,
		Owner: func(pid int) (string, string) {
			if pid == cmd.Process.Pid {
				return "uid", "main"
			}
			return "", ""
		}})
	scanned := make(chan []Finding, 1)
	go func() {
		var findings []Finding
		for range 2 {
			findings, _ = v.Scan(t.Context())
		}
		scanned <- findings
	}()
	select {
	case findings := <-scanned:
		if len(findings) != 1 || !findings[0].Open {
			t.Errorf("found %+v", findings)
		}
	case <-time.After(10 * time.Second):
		t.Error("the look at a process hangs in its files")
	}
}
