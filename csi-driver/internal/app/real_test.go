// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"splitfs.io/splitfs/internal/contract"
)

// buildDir is where `make` leaves the programs: BUILD, as in the Makefile, else a directory seen from this package.
func buildDir() string {
	if dir := os.Getenv("BUILD"); dir != "" {
		return dir
	}
	return "../../../build"
}

// TestRealSplitFS runs the service with the real splitfs program and library, when they are built: a program that uses
// the preload library on a published volume, the agent killed while the volume is in use, and a service that is started
// again.
func TestRealSplitFS(t *testing.T) {
	binary, library := realParts(t)
	s := startNode(t, binary, library)
	for _, mode := range []string{"posix", "sync", "strict"} {
		t.Run(mode, func(t *testing.T) { realVolume(t, s, mode) })
	}
}

func realParts(t *testing.T) (binary, library string) {
	t.Helper()
	var paths []string
	for _, name := range []string{"splitfs", "libsplit.so"} {
		path, err := filepath.Abs(filepath.Join(buildDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Skipf("the real %s is not built (make): %v", name, err)
		}
		paths = append(paths, path)
	}
	return paths[0], paths[1]
}

// appendBlocks is a program that appends so many blocks to a file. Not dd: the library leaves standard output to the
// kernel.
const appendBlocks = `import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for _ in range(int(sys.argv[2])):
    os.write(fd, bytes(4096))
os.fsync(fd)`

func realVolume(t *testing.T, s *service, mode string) {
	v := s.create("real-"+mode, mode)
	inject := filepath.Join(s.dir, "inject-"+mode)
	s.must(s.stage(v), s.publish(v), s.publishLibrary(inject))

	runWithLibrary(t, inject, mode, v.target, "python3", "-c", appendBlocks, v.target+"/appended", "64")
	checkSize(t, filepath.Join(v.target, "appended"), 64*4096)
	appends := `splitfs_append_ops_total{namespace="default",persistentvolumeclaim="real-` + mode + `",volume_id="` +
		v.id + `"} `
	eventually(t, "the operation counters show the appends", func() error {
		_, body := s.get("/metrics")
		_, rest, found := strings.Cut(body, appends)
		if !found || strings.HasPrefix(rest, "0\n") {
			return fmt.Errorf("no appends in:\n%s", grep(body, v.id))
		}
		return nil
	})

	// The agent is killed: it comes back, and the volume works.
	killAgent(t, v.staging)
	eventually(t, "the agent is back", func() error {
		_, body := s.get("/metrics")
		if !strings.Contains(
			body, `splitfs_agent_up{namespace="default",persistentvolumeclaim="real-`+mode+`",volume_id="`+v.id+`"} 1`) {
			return fmt.Errorf("not up in:\n%s", grep(body, v.id))
		}
		if !strings.Contains(
			body, `splitfs_agent_restarts_total{namespace="default",persistentvolumeclaim="real-`+mode+`",volume_id="`+v.id+
				`"} 1`) {
			return fmt.Errorf("not restarted in:\n%s", grep(body, v.id))
		}
		return nil
	})
	runWithLibrary(t, inject, mode, v.target, "python3", "-c", appendBlocks, v.target+"/after", "8")

	// Unstaged and staged again, everything is there.
	s.must(s.unpublish(v.id, v.target), s.unstage(v), s.stage(v), s.publish(v))
	checkSize(t, filepath.Join(v.target, "appended"), 64*4096)
	checkSize(t, filepath.Join(v.target, "after"), 8*4096)
	s.must(s.unpublish("csi-"+mode, inject), s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
}

func (s *service) publishLibrary(target string) error {
	_, err := csi.NewNodeClient(s.conn).NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{
		VolumeId: "csi-0", TargetPath: target, Readonly: true, VolumeCapability: mountCapability(""),
		VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.uid": "1",
			contract.VolumeKindAttribute: contract.VolumeKindLibrary},
	})
	return err
}

// commandWithLibrary returns a program with the environment that the injector gives a container.
func commandWithLibrary(inject, mode, mountPath, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(),
		"LD_PRELOAD="+filepath.Join(inject, "libsplit.so"),
		"SPLITFS_CONFIG="+mode+":"+mountPath+":"+filepath.Join(inject, "agents"),
		// Few and large writes are the kernel's otherwise, and these tests look at what is staged.
		"SPLITFS_GRANT=first")
	return cmd
}

// runWithLibrary runs a program that commandWithLibrary describes, and fails the test when it fails or prints
// something.
func runWithLibrary(t *testing.T, inject, mode, mountPath, program string, args ...string) {
	t.Helper()
	if out, err := commandWithLibrary(inject, mode, mountPath, program, args...).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

func checkSize(t *testing.T, path string, want int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != want {
		t.Errorf("%s has %d bytes, wanted %d", path, info.Size(), want)
	}
}

// killAgent kills the agent of the volume at root. Its command line names the root, which no other process does.
func killAgent(t *testing.T, root string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(content), "\x00agent\x00"+root+"\x00") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/cmdline", &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no agent serves %s", root)
}

func grep(text, word string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}
