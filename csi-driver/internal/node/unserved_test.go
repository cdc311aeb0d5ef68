// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// TestTellUnserved: a pod is told once of each of its programs, and not of those of others; what the agent wrote is
// read when it changes.
func TestTellUnserved(t *testing.T) {
	dir := t.TempDir()
	program, answer, calls := filepath.Join(dir, "splitfs"), filepath.Join(dir, "answer"), filepath.Join(dir, "calls")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(program, []byte("#!/bin/sh\necho >>"+calls+"\nexec cat "+answer+"\n"), 0o755))
	must(os.Mkdir(filepath.Join(dir, ".splitfs"), 0o700))
	told := &recordedEvents{}
	n := &Node{config: Config{Name: "n1", CLI: splitfs.CLI{Binary: program}, Events: told}}
	pod := func(name string) volume.Pod { return volume.Pod{Namespace: "shop", Name: name, UID: "uid-" + name} }
	rec := &volume.Record{ID: "v", Staged: &volume.Staging{Path: dir}, Published: map[string]volume.Publish{
		"/a": {Pod: pod("a"), Unserved: contract.Refuse}, "/b": {Pod: pod("b"), Unserved: contract.Durable},
		"/c": {Pod: pod("c"), Unserved: contract.Allow},
	}}
	w := &unservedWatch{looked: map[string]time.Time{}, told: map[unservedEvent]bool{}}
	when := time.Now()
	// step: the agent has written something, and the node looks twice.
	step := func(enforcement, processes string, want ...string) {
		t.Helper()
		told.list = nil
		must(os.WriteFile(answer,
			[]byte(`{"unserved":{"enforcement":"`+enforcement+`","refused":1,"durable":1,"processes":[`+processes+`]}}`), 0o600))
		file := filepath.Join(dir, unservedFile)
		must(os.WriteFile(file, nil, 0o600))
		when = when.Add(time.Second)
		must(os.Chtimes(file, when, when))
		for range 2 {
			must(n.tellUnserved(t.Context(), w, rec, podsEnforced(rec)))
		}
		slices.Sort(told.list)
		if !slices.Equal(told.list, want) {
			t.Errorf("told %q, want %q", told.list, want)
		}
	}
	must(n.tellUnserved(t.Context(), w, rec, podsEnforced(rec))) // nothing is written yet
	process := func(pod, did, program string) string {
		return `{"pid":5,"did":"` + did + `","opens":1,"seconds":0,"pod":"uid-` + pod + `","program":"` + program +
			`","path":"/data/f"}`
	}
	step("on",
		process("a", "refuse", "/bin/x")+","+process("b", "durable", "/bin/x")+","+process("c", "refuse", "/bin/x")+","+
			process("gone", "refuse", "/bin/x"),
		"pod/shop/a UnservedRefused", "pod/shop/b UnservedDurable")
	step("on", process("a", "refuse", "/bin/x")+","+process("a", "refuse", "/bin/y"), "pod/shop/a UnservedRefused")
	step("cannot", "", "pod/shop/a UnservedNotRefused", "pod/shop/b UnservedNotRefused")
	step("cannot", "")
	if text, err := os.ReadFile(calls); err != nil || len(text) != 4 {
		t.Errorf("the volume was asked %d times for 4 changes, %v", len(text), err)
	}
	for did, says := range map[string][]string{
		"refuse":  {"/bin/x (PID 5 on the node)", "/data/f", "EPERM", "splitfs.io/unserved to durable or allow"},
		"durable": {"/bin/x", "/data/f", "synchronous"},
	} {
		_, message := unservedMessage(rec, splitfs.UnservedProcess{PID: 5, Did: did, Program: "/bin/x", Path: "/data/f"})
		for _, words := range says {
			if !strings.Contains(message, words) {
				t.Errorf("%s: %q does not say %q", did, message, words)
			}
		}
	}
}
