// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// read parses a list that ndctl printed in a virtual machine; of some only one region is kept.
func read(t *testing.T, name string) Inventory {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

func TestParse(t *testing.T) {
	regions := read(t, "labels-mixed.json").Regions()
	if len(regions) != 2 || regions[1].Dev != "region0" || regions[1].ISetID != "0x2468ac00123456" ||
		!regions[1].Labeled() {
		t.Fatalf("regions: %+v", regions)
	}
	region := regions[1]
	if region.Size != 1<<30 || region.Step() != 16<<20 || region.LargestRoom() != 603979776 ||
		region.Provider != "ACPI.NFIT" || region.Kind() != "pmem" {
		t.Errorf("region: %+v", region)
	}
	var used []string
	for _, ns := range region.Used() {
		used = append(used, ns.Name+" "+ns.Mode)
	}
	if want := []string{
		"sector1 sector", "other fsdax", "splitfs-0123456789abcdef0123456789abcdef fsdax",
	}; !reflect.DeepEqual(used, want) {
		t.Errorf("namespaces that hold space: %v, wanted %v (the seed is none)", used, want)
	}
	for name, want := range map[string]string{"other": "/dev/pmem0.1", "sector1": "", "pmem-csi": "", "devdax1": ""} {
		ns, err := read(t, "labels-mixed.json").Find(name)
		if err != nil || ns == nil {
			t.Fatalf("%s: %v, %v", name, ns, err)
		}
		if path, err := ns.Path(); path != want || (err == nil) != (want != "") {
			t.Errorf("path of %s: %q, %v", name, path, err)
		}
	}
	if ns, err := read(t, "labels-mixed.json").Find("nobody"); ns != nil || err != nil {
		t.Errorf("found %+v, %v", ns, err)
	}
	if r := read(t, "no-labels.json").Regions()[0]; r.Labeled() || len(r.Used()) != 1 {
		t.Errorf("a region without labels: %+v", r)
	}
	// A namespace that was interrupted took the seed: the next one cannot be made before it is enabled.
	if r := read(t, "killed.json").Regions()[0]; len(r.Used()) != len(r.Namespaces) || r.Used()[0].Enabled() {
		t.Errorf("an interrupted namespace: %+v", r)
	}
	for provider, fit := range map[string]bool{"ACPI.NFIT": true, "CXL": true, "e820": true, "virtio-pmem": false} {
		if err := (Region{Provider: provider}).Unfit(); (err == nil) != fit {
			t.Errorf("%s: %v", provider, err)
		}
	}
	// One that was interrupted later, or whose driver gave up, is listed without its size: the space is not free.
	claimed := read(t, "claimed.json")
	if r := claimed.Regions()[0]; len(r.Used()) != 1 || !r.Used()[0].Claimed || r.Used()[0].Enabled() {
		t.Errorf("a claimed namespace: %+v", r)
	}
	if ns, err := claimed.Find("splitfs-ffffffffffffffffffffffffffffffff"); err != nil || ns == nil {
		t.Errorf("a claimed namespace was not found: %v, %v", ns, err)
	}
	if empty, err := Parse([]byte("\n")); len(empty) != 0 || err != nil {
		t.Errorf("nothing is %+v, %v", empty, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, bad := range []string{
		`{`, `{}`, `[] []`, `[{"regions":[{"dev":"../../x"}]}]`, `[{"regions":[{"dev":"region0","size":"1 GiB"}]}]`,
		`[{"regions":[{}]}]`,
		`[{"regions":[{"dev":"region0","namespaces":[{"dev":"--force"}]}]}]`,
		`[{"regions":[{"dev":"region0","namespaces":[{"dev":"n","blockdev":"a/b"}]}]}]`,
	} {
		if inventory, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s is %+v", bad, inventory)
		}
	}
	// What ndctl prints for a size that it cannot know.
	inventory, err := Parse(
		[]byte(
			`[{"regions":[{"dev":"region0","namespaces":[{"dev":"namespace0.0","size":18446744073709551615},` +
				`{"dev":"namespace0.1","size":-1}]}]}]`))
	if err != nil || len(inventory.Regions()[0].Used()) != 0 {
		t.Errorf("unknown sizes: %+v, %v", inventory, err)
	}
	if _, err := (Inventory{
		{Regions: []Region{{Namespaces: []Namespace{{Dev: "a", Name: "x", Size: 1}, {Dev: "b", Name: "x", Size: 1}}}}},
	}).Find("x"); err == nil {
		t.Error("two namespaces of one name were no error")
	}
}

func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/*.json")
	if err != nil || len(names) == 0 {
		f.Fatal(names, err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		inventory, err := Parse(in)
		if err != nil {
			return
		}
		for _, region := range inventory.Regions() {
			if strings.ContainsAny(region.Dev, "/ ") || strings.HasPrefix(region.Dev, "-") || region.Step() < HugePage ||
				region.LargestRoom()%region.Step() != 0 {
				t.Errorf("region %+v", region)
			}
			for _, ns := range region.Used() {
				if path, err := ns.Path(); err == nil && filepath.Dir(path) != "/dev" {
					t.Errorf("path %q", path)
				}
			}
		}
	})
}

// TestSizes holds the kernel's sums, as the virtual machine showed them, and the inverse.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		raw, usable int64
		where       Map
	}{
		{256 << 20, 262144000, MapDev}, {128 << 20, 132120576, MapMem}, {896 << 20, 922746880, MapDev},
		{448 << 20, 461373440, MapDev},
		{64 << 20, 65011712, MapDev}, {512 << 20, 526385152, MapDev}, {0, 0, MapDev}, {2 << 20, 0, MapMem},
	} {
		if got := UsableSize(c.raw, c.where); got != c.usable {
			t.Errorf("of %d bytes (map %s) %d are usable, expected %d", c.raw, c.where, got, c.usable)
		}
	}
	for _, where := range []Map{MapDev, MapMem} {
		for _, step := range []int64{HugePage, 16 << 20, 1 << 30} {
			for _, size := range []int64{1, HugePage, 300 << 20, 511<<20 + 1, 100 << 30, 6 << 40} {
				raw := RawSize(size, where, step)
				if raw%step != 0 || UsableSize(raw, where) < size || UsableSize(raw-step, where) >= size {
					t.Errorf("%d bytes take %d (map %s, step %d), of which %d are usable", size, raw, where, step,
						UsableSize(raw, where))
				}
			}
		}
	}
	for _, bad := range []string{"", "disk", "DEV"} {
		if _, err := ParseMap(bad); err == nil {
			t.Errorf("map %q was accepted", bad)
		}
	}
}

func TestSelector(t *testing.T) {
	regions := read(t, "labels-mixed.json")
	for list, want := range map[string][]string{
		"all": {"region1", "region0"}, "region0": {"region0"}, "0x2468AC00123456": {"region0"}, "region7": nil,
		"region0,0x2468ae00123457": {"region1", "region0"},
	} {
		s, err := ParseSelector(strings.Split(list, ","))
		if err != nil || s.Empty() {
			t.Fatalf("%s: %v", list, err)
		}
		var got []string
		for _, r := range s.Of(regions) {
			got = append(got, r.Dev)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s selects %v, wanted %v", list, got, want)
		}
	}
	if s, err := ParseSelector(nil); err != nil || !s.Empty() || len(s.Of(regions)) != 0 {
		t.Errorf("nothing selects something: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "region", "Region0", "0x", "0x0", "region0;region1", "pmem0", "*"} {
		if _, err := ParseSelector([]string{bad}); err == nil || !strings.Contains(err.Error(), "0x2468ac00123456") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBudget(t *testing.T) {
	region := read(t, "labels-mixed.json").Regions()[1] // 1 GiB, of which a namespace of ours takes 256 MiB
	for percent, want := range map[int]int64{100: 768 << 20, 50: 256 << 20, 25: 0, 1: 0} {
		if got := region.Budget(percent, MapDev); got != want {
			t.Errorf("%d percent leave %d MiB, wanted %d", percent, got>>20, want>>20)
		}
	}
	for _, bad := range []int{-1, 0, 101} {
		if CheckPercent(bad) == nil {
			t.Errorf("%d percent were accepted", bad)
		}
	}
}
