// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/module"
)

// run runs a command of the program and returns what it printed.
func run(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

// thisKernel says in which state a node without any module ends on the kernel that the test runs on.
func thisKernel() module.State {
	if _, err := os.Stat("/proc/modules"); err != nil {
		return module.Unsupported
	}
	return module.NoModuleForKernel
}

// TestServiceWithoutModule: a node that was told to use the module and has none for its kernel serves volumes, ext4
// ones too, and says in its metrics what it uses.
func TestServiceWithoutModule(t *testing.T) {
	s := startNode(t, "", "")
	metric := func(want ...string) {
		t.Helper()
		eventually(t, "the metrics show the module", func() error {
			_, body := s.get("/metrics")
			for _, line := range want {
				if !strings.Contains(body, line+"\n") {
					return fmt.Errorf("no line %q in:\n%s", line, body)
				}
			}
			return nil
		})
	}
	metric(`splitfs_module_state{state="NotConfigured"} 1`,
		`splitfs_node_relink_provider{fstype="ext4",provider="copy"} 1`)
	s.stop()
	s.options.module, s.options.moduleDirs = true, []string{filepath.Join(s.dir, "modules")}
	s.start()
	metric(fmt.Sprintf(`splitfs_module_state{state=%q} 1`, thisKernel()), `splitfs_module_state{state="Ready"} 0`,
		"splitfs_module_users 0")
	v := s.create("claim", "strict")
	s.must(s.stage(v), s.publish(v), s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))

	out, err := run("module", "status", "--data-dir", s.options.dataDir)
	s.must(err)
	if !strings.Contains(out, string(thisKernel())) || !strings.Contains(out, "copy") {
		t.Errorf("status:\n%s", out)
	}
}

// TestModuleCommands: what an operator gets on a node without a module, and for wrong arguments.
func TestModuleCommands(t *testing.T) {
	dir := t.TempDir()
	out, err := run("module", "status", "--json", "--data-dir", dir, "--module-dir", dir)
	var report module.Report
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.State != thisKernel() || report.Release == "" ||
		report.Providers["ext4"] != "copy" {
		t.Errorf("%+v, %v from %s", report, err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("status left %v, %v", left, err)
	}
	failing := filepath.Join(t.TempDir(), "build")
	if err := os.WriteFile(failing, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"load", "--data-dir", dir, "--module-dir", dir}, string(thisKernel())},
		{[]string{"unload"}, "not loaded"},
		{[]string{"build", "--release", "../x", "--out", dir}, "no kernel release"},
		{[]string{"build", "--release", "6.1.0", "--out", dir, "--script", dir + "/build", "--sign-key", "k"},
			"both a key and its certificate"},
		{[]string{"build", "--release", "6.1.0", "--out", dir, "--script", failing}, "build the module for kernel 6.1.0"},
		{[]string{"copy", "--from", ""}, "--from"},
		{[]string{"status", "now"}, "now"},
	} {
		if out, err := run(append([]string{"module"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %q, %v; wanted %q", c.args, out, err, c.says)
		}
	}
	// In an init container a failure must not keep the node service from starting.
	for _, args := range [][]string{
		{"build", "--tolerant", "--release", "6.1.0", "--out", dir, "--script", dir + "/none"},
		{"copy", "--tolerant", "--release", "6.1.0", "--from", dir, "--to", dir},
	} {
		if _, err := run(append([]string{"module"}, args...)...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}
