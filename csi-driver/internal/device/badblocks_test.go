// SPDX-License-Identifier: Apache-2.0

package device

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBadBytes builds the parts of sysfs that matter: a region, a partition of it, a logical volume on both.
func TestBadBytes(t *testing.T) {
	sysfs := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, content string) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(filepath.Join(sysfs, path)), 0o755))
		must(os.WriteFile(filepath.Join(sysfs, path), []byte(content), 0o644))
	}
	link := func(path, target string) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(filepath.Join(sysfs, path)), 0o755))
		must(os.Symlink(filepath.Join(sysfs, target), filepath.Join(sysfs, path)))
	}
	write("devices/pmem0/badblocks", "8 16\n1024 8\n")
	write("devices/pmem0/pmem0p1/partition", "1\n")
	write("devices/pmem1/badblocks", "")
	write("devices/dm-0/dm/name", "vg-lv\n")
	link("devices/dm-0/slaves/pmem0p1", "devices/pmem0/pmem0p1")
	link("devices/dm-0/slaves/pmem1", "devices/pmem1")
	write("devices/strange/badblocks", "many\n")
	for number, target := range map[string]string{
		"259:0": "pmem0", "259:1": "pmem0/pmem0p1", "259:2": "pmem1", "253:0": "dm-0", "1:1": "strange",
	} {
		link("dev/block/"+number, "devices/"+target)
	}
	for _, c := range []struct {
		major, minor uint32
		want         int64
		bad          bool
	}{
		{259, 0, 24 * 512, false},
		{259, 1, 24 * 512, false},
		{259, 2, 0, false},
		{253, 0, 24 * 512, false},
		{7, 0, 0, false},
		{1, 1, 0, true},
	} {
		got, err := BadBytes(sysfs, c.major, c.minor)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%d:%d: %d, %v; wanted %d", c.major, c.minor, got, err, c.want)
		}
	}
}
