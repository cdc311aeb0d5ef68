// SPDX-License-Identifier: Apache-2.0

package module

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree writes files below a directory; a name that ends in "/" is a directory.
func tree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fakeKernel is a kernel whose /proc and /sys hold these files.
func fakeKernel(t *testing.T, files map[string]string) Kernel {
	t.Helper()
	dir := t.TempDir()
	tree(t, dir,
		map[string]string{"proc/filesystems": "nodev\tsysfs\n\text4\n", "proc/sys/kernel/random/boot_id": "boot-1\n",
			"proc/1/mountinfo": "", "proc/self/mountinfo": "", "sys/": "", "root/": ""})
	tree(t, dir, files)
	return Kernel{
		Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), HostRoot: filepath.Join(dir, "root"),
		Release: testRelease,
	}
}

func TestPolicy(t *testing.T) {
	const secureBoot = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	for name, c := range map[string]struct {
		files map[string]string
		want  policy
		needs string
	}{
		"no modules at all": {nil, policy{}, ""},
		"a plain node": {map[string]string{
			"proc/modules": "", "proc/sys/kernel/modules_disabled": "0\n", "sys/module/module/parameters/sig_enforce": "N\n",
			"sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
		}, policy{Supported: true, Lockdown: "none"}, ""},
		"modules disabled": {map[string]string{"proc/modules": "", "proc/sys/kernel/modules_disabled": "1\n"},
			policy{Supported: true, Disabled: true}, ""},
		"signatures": {map[string]string{"proc/modules": "", "sys/module/module/parameters/sig_enforce": "Y\n"},
			policy{Supported: true, Enforced: true}, "sig_enforce"},
		"lockdown": {map[string]string{
			"proc/modules": "", "sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
		}, policy{Supported: true, Lockdown: "integrity"}, "locked down (integrity)"},
		// A container's own /sys does not show what the node's shows.
		"lockdown of the node": {map[string]string{
			"proc/modules": "", "root/sys/kernel/security/lockdown": "none integrity [confidentiality]\n",
			"sys/kernel/security/": "",
		}, policy{Supported: true, Lockdown: "confidentiality"}, "locked down (confidentiality)"},
		"secure boot": {map[string]string{"proc/modules": "", "root/sys/" + secureBoot: "\x06\x00\x00\x00\x01"},
			policy{Supported: true, SecureBoot: true}, ""},
		"secure boot is off": {map[string]string{"proc/modules": "", "sys/" + secureBoot: "\x06\x00\x00\x00\x00"},
			policy{Supported: true}, ""},
	} {
		got, err := fakeKernel(t, c.files).policy()
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; wanted %+v", name, got, err, c.want)
		}
		if why := got.signatureNeeded(); (why == "") != (c.needs == "") || !strings.Contains(why, c.needs) {
			t.Errorf("%s: a signature is needed because %q, wanted %q", name, why, c.needs)
		}
	}
	// What cannot be understood is not taken for "allowed".
	if p, err := fakeKernel(t, map[string]string{"proc/modules": "", "sys/kernel/security/lockdown": "some thing new"}).
		policy(); err == nil {
		t.Errorf("an unknown lockdown level: %+v", p)
	}
}

func TestParseFileSystems(t *testing.T) {
	for content, want := range map[string][]string{
		"":                                     nil,
		"nodev\tsysfs\nnodev\ttmpfs\n\text4\n": {"sysfs", "tmpfs", "ext4"},
		"\text4\n\text4_splitfs":               {"ext4", "ext4_splitfs"},
		"garbage\n\n\t\nnodev\text4_splitfs_old\n": {"ext4_splitfs_old"},
	} {
		if got := parseFileSystems(content); !slices.Equal(got, want) {
			t.Errorf("%q: %q, wanted %q", content, got, want)
		}
	}
}

func TestParseLockdown(t *testing.T) {
	for content, want := range map[string]string{
		"": "", "[none] integrity confidentiality": "none", "none [integrity] confidentiality\n": "integrity",
		"none integrity [confidentiality]": "confidentiality",
	} {
		if got, err := parseLockdown(content); err != nil || got != want {
			t.Errorf("%q: %q, %v; wanted %q", content, got, err, want)
		}
	}
	for _, content := range []string{"none", "[]", "[none", "none] [", "integrity confidentiality"} {
		if got, err := parseLockdown(content); err == nil {
			t.Errorf("%q: %q without an error", content, got)
		}
	}
}

// TestThisKernel asks the kernel the test runs on; what it says must hold together.
func TestThisKernel(t *testing.T) {
	k, err := Running()
	if err != nil {
		t.Fatal(err)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if k.Release != unix.ByteSliceToString(uts.Release[:]) {
		t.Errorf("release %q", k.Release)
	}
	p, err := k.policy()
	if err != nil {
		t.Fatal(err)
	}
	_, statErr := os.Stat("/proc/modules")
	if p.Supported != (statErr == nil) {
		t.Errorf("modules are supported: %v, /proc/modules: %v", p.Supported, statErr)
	}
	t.Logf("kernel %s: %+v", k.Release, p)
}
