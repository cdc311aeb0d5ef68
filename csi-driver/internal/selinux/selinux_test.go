// SPDX-License-Identifier: Apache-2.0

package selinux

import (
	"os"
	"path/filepath"
	"testing"
)

// What labels do is tested where there is SELinux: hack/vm test selinux.

func TestKnows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "filesystems")
	for content, want := range map[string]bool{
		"nodev\tsysfs\nnodev\tselinuxfs\n\txfs\n": true,
		"nodev\tsysfs\n\txfs\n":                   false,
		"":                                        false,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if knows(file) != want {
			t.Errorf("%q: %v", content, !want)
		}
	}
	if knows(file + ".not") {
		t.Error("a node without /proc")
	}
}

func TestNothingWithoutSELinux(t *testing.T) {
	if Enabled() {
		t.Skip("this machine has SELinux")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if err := Label(missing, ReadOnly); err != nil {
		t.Error(err)
	}
	if err := LabelTree(missing, ReadWrite); err != nil {
		t.Error(err)
	}
}
