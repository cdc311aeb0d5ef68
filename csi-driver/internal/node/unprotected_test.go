// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestTellUnprotected: a pod is told once that a process of it asks for protection and has none, and nobody else is.
func TestTellUnprotected(t *testing.T) {
	told := &recordedEvents{}
	owners := map[int]string{1: "uid-a", 2: "uid-a", 3: "uid-b", 4: "uid-elsewhere", 5: "", 6: "uid-c"}
	n := &Node{config: Config{Name: "n1", Proc: t.TempDir(), Events: told, Owner: func(pid int) (pod, container string) {
		return owners[pid], ""
	}}}
	pod := func(name string) volume.Pod { return volume.Pod{Namespace: "shop", Name: name, UID: "uid-" + name} }
	rec := &volume.Record{ID: "v", Published: map[string]volume.Publish{
		"/a": {Pod: pod("a")}, "/b": {Pod: pod("b")}, "/c": {Pod: pod("c")}, "/unknown": {},
	}}
	process := func(pid int, alive bool, protection string) splitfs.Process {
		return splitfs.Process{PID: pid, Comm: "redis-server", Alive: alive, Protection: protection}
	}
	w := unprotectedWatch{}
	look := func(want []string, processes ...splitfs.Process) {
		t.Helper()
		told.list = nil
		n.tellUnprotected(t.Context(), w, rec, &splitfs.Status{Processes: processes})
		if !slices.Equal(told.list, want) {
			t.Errorf("told %q, want %q", told.list, want)
		}
	}
	look(nil, process(1, true, "on"), process(3, true, "off"), process(6, false, "cannot"))
	all := []splitfs.Process{
		process(1, true, "cannot"), process(2, true, "cannot"), process(4, true, "cannot"), process(5, true, "cannot"),
		process(6, true, ""), // of a library that says nothing of it
	}
	look([]string{"pod/shop/a StoresNotProtected"}, all...)
	look(nil, all...)
	w.forget([]*volume.Record{rec})
	look([]string{"pod/shop/b StoresNotProtected"}, append(all, process(3, true, "cannot"))...)
	w.forget(nil)
	look([]string{"pod/shop/a StoresNotProtected"}, all...)
}

// TestUnprotectedMessage: it says why there is no key, and what to do.
func TestUnprotectedMessage(t *testing.T) {
	n := &Node{config: Config{Name: "n1", Proc: t.TempDir()}}
	for flags, says := range map[string]string{
		"":                               "node n1 has no protection keys",
		"flags\t\t: fpu pku\n":           "node n1 has no protection keys", // the kernel does not use them
		"flags\t\t: fpu pku ospke avx\n": "the program has taken all protection keys",
	} {
		if err := os.WriteFile(filepath.Join(n.config.Proc, "cpuinfo"), []byte(flags), 0o600); err != nil {
			t.Fatal(err)
		}
		message := n.unprotectedMessage(&volume.Record{ID: "v"}, &splitfs.Process{PID: 5, Comm: "redis-server"})
		for _, words := range []string{says, `"redis-server" (PID 5 on the node)`, "volume v",
			`annotation splitfs.io/protect`, `to "off"`} {
			if !strings.Contains(message, words) {
				t.Errorf("cpuinfo %q: %q does not say %q", flags, message, words)
			}
		}
	}
}
