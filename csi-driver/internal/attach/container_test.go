// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"os"
	"path/filepath"
	"testing"
)

func TestContainerInPath(t *testing.T) {
	for root, want := range map[string]string{
		"/var/lib/kubelet/pods/0b9c/containers/web/3f2a": "web",
		"/pods/0b9c/containers/web/3f2a":                 "web", // kubelet's directory is a file system of its own
		"/var/lib/containers/storage/overlay":            "",
		"/var/lib/kubelet/pods/0b9c/volumes/web":         "",
	} {
		found := ""
		if match := containerInPath.FindStringSubmatch(root); match != nil {
			found = match[1]
		}
		if found != want {
			t.Errorf("container of a mount of %s: %q, want %q", root, found, want)
		}
	}
}

// TestOwner: a process is told by its number in a procfs.
func TestOwner(t *testing.T) {
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	proc := t.TempDir()
	for pid, cgroup := range map[string]string{"5": "0::/kubepods/burstable/pod" + uid + "/init\n", "6": "0::/\n"} {
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	owner := Owner(proc)
	for pid, want := range map[int]string{5: uid, 6: "", 7: ""} {
		if pod, _ := owner(pid); pod != want {
			t.Errorf("process %d is of pod %q, want %q", pid, pod, want)
		}
	}
}
