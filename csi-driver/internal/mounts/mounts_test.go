// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBindAfterKill: a bind mount gets its options in a second step. When the process was killed between the two the
// next call does the second one, and changes no mount of another source, or that would have to get rights.
func TestBindAfterKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	dir := t.TempDir()
	source, other, target := filepath.Join(dir, "source"), filepath.Join(dir, "other"), filepath.Join(dir, "target")
	for _, d := range []string{source, other, target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	m := New()
	t.Cleanup(func() {
		if err := m.Cleanup(target); err != nil {
			t.Error(err)
		}
	})
	if err := m.Bind(t.Context(), other, target, []string{"ro"}); err == nil {
		t.Error("bound over the mount of another directory")
	}
	if err := os.WriteFile(filepath.Join(target, "x"), nil, 0o644); err != nil {
		t.Errorf("a call that failed changed the mount: %v", err)
	}
	for range 2 {
		if err := m.Bind(t.Context(), source, target, []string{"ro", "nosuid", "nodev"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "y"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to it: %v, wanted EROFS", err)
	}
	if err := m.Bind(t.Context(), source, target, nil); err == nil {
		t.Error("a mount that is read-only passes for a writable one")
	}
}
