// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func TestParseReport(t *testing.T) {
	content, err := os.ReadFile("testdata/pvs.json")
	if err != nil {
		t.Fatal(err)
	}
	physical, logical, err := parseReport(content)
	if err != nil || len(physical) != 1 || len(logical) != 0 {
		t.Fatalf("%+v, %+v, %v", physical, logical, err)
	}
	if pv := physical[0]; pv.Device != "/dev/pmem0" || pv.Start != 2<<20 || pv.Group != "splitfs-8b4e0a5b" ||
		!pv.GroupTags.has(ownTag) || pv.Free != 396361728 {
		t.Errorf("%+v", pv)
	}
	_, logical, err = parseReport(
		[]byte(
			`{"report":[{"lv":[{"lv_name":"a","vg_name":"g","lv_tags":"x,splitfs.io","lv_size":"2097152","lv_kernel_minor":"3"},
		{"lv_name":"b","vg_name":"g","lv_tags":"","lv_size":"","lv_kernel_minor":"-1"}]}],"log":[]}`))
	if err != nil || len(logical) != 2 {
		t.Fatalf("%+v, %v", logical, err)
	}
	if lv := (found{logicalVolume: logical[0]}); lv.path() != "g/a" || lv.node() != "/dev/dm-3" || !lv.Tags.has(ownTag) {
		t.Errorf("%+v", lv)
	}
	if lv := (found{logicalVolume: logical[1]}); lv.node() != "" || lv.Tags.has("") || lv.Size != 0 {
		t.Errorf("%+v", lv)
	}
	for _, bad := range []string{
		``, `{`, `[]`, `{}`, `{"report":[]}`, `{"report":[{"lv":[{"lv_size":"2 GiB"}]}]}`,
		`{"report":[{"lv":[{"lv_tags":["a"]}]}]}`,
	} {
		if _, _, err := parseReport([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseReport(f *testing.F) {
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
		_, logical, err := parseReport(in)
		if err != nil {
			return
		}
		for _, lv := range logical {
			if node := (&found{logicalVolume: lv}).node(); node != "" && !strings.HasPrefix(node, "/dev/dm-") {
				t.Errorf("node %q", node)
			}
		}
	})
}

// TestNoDeviceNoCommand: without a device to restrict it to, lvm would see every volume group of the machine.
func TestNoDeviceNoCommand(t *testing.T) {
	if out, err := run(context.Background(), nil, "lvs"); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("lvm was run for no device: %s, %v", out, err)
	}
	if physical, logical, err := list(context.Background(), nil, "pvs", physicalFields); physical != nil ||
		logical != nil || err != nil {
		t.Errorf("no devices have %v, %v, %v", physical, logical, err)
	}
}

func TestRoomiest(t *testing.T) {
	if g := roomiest(nil); g.free != 0 || g.name != "" {
		t.Errorf("no groups have %+v", g)
	}
	if g := roomiest([]group{{name: "a", free: 1}, {name: "b", free: 3}, {name: "c", free: 2}}); g.name != "b" {
		t.Errorf("chose %+v", g)
	}
}

func TestGroupName(t *testing.T) {
	if name, err := groupName(nvdimm.Namespace{
		UUID: "8b4e0a5b-cb25-46ee-a9ea-e1a692b47f3e",
	}); name != "splitfs-8b4e0a5b" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	if name, err := groupName(nvdimm.Namespace{Dev: "namespace0.0"}); err == nil {
		t.Errorf("a namespace without UUID has group %q", name)
	}
}

func TestNew(t *testing.T) {
	all, err := nvdimm.ParseSelector([]string{nvdimm.All})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"no region": {Percent: 100}, "no share": {Regions: all}, "too much": {Regions: all, Percent: 101},
	} {
		if _, err := New(c, &nvdimm.Tool{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// TestNamespaceWithoutLabels: what cannot be used yet is refused with the command that helps, and left alone.
func TestNamespaceWithoutLabels(t *testing.T) {
	all, err := nvdimm.ParseSelector([]string{nvdimm.All})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Regions: all, Percent: 100}, &nvdimm.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	const advice = "ndctl create-namespace --force --reconfig=namespace0.0 --mode=fsdax --align=2M"
	for _, c := range []struct {
		mode, uuid string
		usable     bool
	}{{"raw", "", false}, {"sector", "8b4e0a5b", false}, {"fsdax", "", false}, {"fsdax", "8b4e0a5b", true}} {
		region := nvdimm.Region{
			Dev: "region0", Namespaces: []nvdimm.Namespace{{Dev: "namespace0.0", Mode: c.mode, UUID: c.uuid, Size: 1 << 30}},
		}
		ns, fresh, err := m.namespaceOf(context.Background(), region, true, true)
		if fresh || (ns != nil) != c.usable || (err == nil) != c.usable ||
			err != nil && !strings.Contains(err.Error(), advice) {
			t.Errorf("%s, UUID %q: %+v, %t, %v", c.mode, c.uuid, ns, fresh, err)
		}
	}
}

// TestFitting: a volume that needs durable memory goes to no other group, however roomy that is.
func TestFitting(t *testing.T) {
	groups := []group{
		{name: "large", region: "region0", free: 100,
			less: nvdimm.Region{Memory: volume.MemoryVolatile, MemoryWhy: "memmap="}.Less()},
		{name: "small", region: "region1", free: 10, less: nvdimm.Region{Memory: volume.MemoryGPF}.Less()},
	}
	for durability, want := range map[volume.Durability]string{
		volume.DurabilityAny: "large", volume.DurabilityRequired: "small",
	} {
		if fit, _ := fitting(groups, wanted{durability: durability}); roomiest(fit).name != want {
			t.Errorf("%s goes to %v", durability, roomiest(fit))
		}
	}
	_, less := fitting(groups, wanted{durability: volume.DurabilityRequired})
	if err := less.Err(); len(less) != 1 || !strings.Contains(err.Error(), `region0: its memory is "volatile" (memmap=)`) {
		t.Errorf("%v", err)
	}
}

// TestNames: lvm refuses names that begin with "snapshot", which IDs of snapshots do.
func TestNames(t *testing.T) {
	for _, id := range []string{volume.IDFromName("pvc-1"), volume.SnapshotID("snap", "node-1")} {
		name := logicalName(id)
		if got, ours := idOf(name); got != id || !ours || strings.HasPrefix(name, "snapshot") || len(name) > 100 {
			t.Errorf("%s is named %s, which is %s, %t", id, name, got, ours)
		}
	}
	for _, name := range []string{"root", volume.SnapshotID("snap", "node-1"), "splitfs-", "splitfs-pool"} {
		if id, ours := idOf(name); ours {
			t.Errorf("%s is taken for %s", name, id)
		}
	}
}

func selector(t *testing.T, words ...string) nvdimm.Selector {
	t.Helper()
	s, err := nvdimm.ParseSelector(words)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClasses: a volume of a class goes to its regions only, and leaves there what the class spares. What is offered
// can be made: a logical volume has whole extents.
func TestClasses(t *testing.T) {
	m, err := New(Config{Regions: selector(t, nvdimm.All), Percent: 100, Classes: []Class{
		{Name: "fast", Regions: selector(t, "region0"), Default: true},
		{Name: "bulk", Regions: selector(t, "0x2468"), Spare: 5 * volume.MiB},
		{Name: "reserve"},
	}}, &nvdimm.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	groups := []group{
		{name: "a", region: "region0", free: 10 * volume.MiB},
		{name: "b", region: "region1", set: "0x2468", free: 12 * volume.MiB},
		{name: "c", region: "region2", set: "0x2468", free: 3 * volume.MiB},
	}
	for class, want := range map[string]struct {
		called, group string
		free          int64
		groups        int
	}{
		"": {"fast", "a", 10, 1}, "fast": {"fast", "a", 10, 1},
		"bulk":    {"bulk", "b", 6, 2}, // 12 less 5 is no number of extents
		"reserve": {"reserve", "b", 12, 3},
	} {
		manager, called, err := m.OfClass(class)
		if err != nil {
			t.Fatalf("%q: %v", class, err)
		}
		v, ok := manager.(view)
		if !ok || called != want.called {
			t.Fatalf("%q is %T, called %q", class, manager, called)
		}
		fit, _ := fitting(groups, v.wanted)
		if best := roomiest(fit); len(fit) != want.groups || best.name != want.group || best.free != want.free*volume.MiB {
			t.Errorf("%q goes to %+v of %+v", class, best, fit)
		}
		if durable, ok := v.OnlyDurable().(view); !ok || durable.wanted.class != v.wanted.class ||
			!durable.wanted.durability.Required() {
			t.Errorf("%q: for durable memory it is %+v", class, durable)
		}
	}
	_, _, err = m.OfClass("slow")
	if !errors.Is(err, device.ErrNoClass) || !errors.Is(err, volume.ErrInvalid) ||
		!strings.Contains(err.Error(), `"slow"`) || !strings.Contains(err.Error(), "fast, bulk, reserve") {
		t.Errorf("an unknown class: %v", err)
	}
}

// TestGrowable: a volume grows in its own volume group, whatever is free in others, and leaves there what its class
// spares.
func TestGrowable(t *testing.T) {
	memory, ctx := newMemory(t), t.Context()
	here, there := memory.add(true), memory.add(true)
	id := volume.IDFromName("one")
	memory.vg(here, id)
	memory.vg(there, volume.IDFromName("two"))
	device, err := there.Path()
	must(t, err)
	name, err := groupName(*there)
	must(t, err)
	_, err = run(ctx, []string{device}, "lvremove", assumeYes, name)
	must(t, err)
	m := memory.manager(nvdimm.All)
	groups, _, err := m.groups(ctx, false)
	must(t, err)
	if len(groups) != 2 || groups[0].free >= groups[1].free {
		t.Fatalf("the groups are %+v", groups)
	}
	for what, c := range map[string]struct {
		of   view
		want int64
	}{
		"without classes": {view{m, wanted{}}, groups[0].free},
		"where its class spares": {
			view{m, wanted{class: &Class{Name: "a", Spare: 5 * volume.MiB}}}, groups[0].free - 6*volume.MiB,
		},
		"where its class has gone": {
			view{m, wanted{class: &Class{Name: "a", Spare: volume.GiB, Regions: selector(t, "region1")}}}, groups[0].free,
		},
		"where its class spares more than there is": {view{m, wanted{class: &Class{Name: "a", Spare: volume.GiB}}}, 0},
	} {
		if more, err := c.of.Growable(ctx, id); err != nil || more != c.want {
			t.Errorf("%s it can grow by %d bytes, wanted %d, %v", what, more, c.want, err)
		}
	}
	if _, err := m.Growable(ctx, volume.IDFromName("three")); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("a volume that is not there: %v", err)
	}
}

// TestClassesDefined: definitions that could not be what the operator means are refused, and without any there is one
// class, that has no name.
func TestClassesDefined(t *testing.T) {
	config := Config{Regions: selector(t, nvdimm.All), Percent: 100}
	for name, classes := range map[string][]Class{
		"no name": {{}}, "a bad name": {{Name: "Fast"}}, "twice": {{Name: "a"}, {Name: "a"}},
		"two defaults": {{Name: "a", Default: true}, {Name: "b", Default: true}}, "negative": {{Name: "a", Spare: -1}},
	} {
		config.Classes = classes
		if _, err := New(config, &nvdimm.Tool{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	config.Classes = []Class{{Name: "a"}}
	m, err := New(config, &nvdimm.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.OfClass(""); !errors.Is(err, device.ErrNoClass) || !strings.Contains(err.Error(), "no default") {
		t.Errorf("no default: %v", err)
	}
	config.Classes = nil
	if m, err = New(config, &nvdimm.Tool{}); err != nil {
		t.Fatal(err)
	}
	if manager, name, err := m.OfClass(""); manager != m || name != "" || err != nil {
		t.Errorf("without classes: %v, %q, %v", manager, name, err)
	}
	if _, _, err := m.OfClass("a"); !errors.Is(err, device.ErrNoClass) || !strings.Contains(err.Error(), "no classes") {
		t.Errorf("a class where none are: %v", err)
	}
}
