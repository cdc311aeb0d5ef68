// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestSELinuxLayout makes what pods are given on a node, for `hack/vm test selinux`, whose programs then use it:
// SPLITFS_SELINUX_DIR is the data directory, SPLITFS_SELINUX_PODS the pods' UIDs, SPLITFS_SELINUX_ROOT where a volume
// is mounted, LIBSPLIT the library.
func TestSELinuxLayout(t *testing.T) {
	dir := os.Getenv("SPLITFS_SELINUX_DIR")
	if dir == "" {
		t.Skip("for hack/vm test selinux")
	}
	l := library{source: os.Getenv("LIBSPLIT"), dir: filepath.Join(dir, "inject"),
		pods: filepath.Join(dir, "agents", podsName), lock: &sync.Mutex{}, seen: newSightings()}
	if err := l.prepareDirs(); err != nil {
		t.Fatal(err)
	}
	if err := l.install(); err != nil {
		t.Fatal(err)
	}
	for _, uid := range strings.Fields(os.Getenv("SPLITFS_SELINUX_PODS")) {
		if _, err := l.prepareForPod(uid); err != nil {
			t.Fatal(err)
		}
	}
	if root := os.Getenv("SPLITFS_SELINUX_ROOT"); root != "" {
		if err := labelRoot(root); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(root, dataDir), 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
}
