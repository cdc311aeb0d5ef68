// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func thinManager(t *testing.T) *Manager {
	t.Helper()
	m, err := New(Config{Regions: selector(t, nvdimm.All), Percent: 100, Classes: []Class{
		{Name: "thick"},
		{Name: "thin", Regions: selector(t, "region0"), Default: true, Thin: &ThinPool{Name: "pool0", Overprovision: 3}},
	}}, &nvdimm.Tool{})
	must(t, err)
	return m
}

// thinReport is what lvm of Debian 13 says of a volume group with a thin pool, a thin volume and a snapshot of it, of
// which the volume is active.
const thinReport = `{"report": [{"lv": [
 {"lv_name":"splitfs-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "vg_name":"g", "lv_tags":"splitfs.io", "lv_size":"419430400",
  "lv_kernel_minor":"4", "pool_lv":"pool0", "data_percent":"39.95", "metadata_percent":"", "lv_metadata_size":"",
  "lv_when_full":"", "lv_health_status":""},
 {"lv_name":"pool0", "vg_name":"g", "lv_tags":"splitfs.io.pool", "lv_size":"167772160", "lv_kernel_minor":"2",
  "pool_lv":"", "data_percent":"50.00", "metadata_percent":"12.50", "lv_metadata_size":"4194304",
  "lv_when_full":"error", "lv_health_status":""},
 {"lv_name":"snap", "vg_name":"g", "lv_tags":"splitfs.io", "lv_size":"41943040", "lv_kernel_minor":"-1",
  "pool_lv":"pool0", "data_percent":"", "metadata_percent":"", "lv_metadata_size":"", "lv_when_full":"",
  "lv_health_status":""},
 {"lv_name":"linear", "vg_name":"g", "lv_tags":"splitfs.io", "lv_size":"2097152", "lv_kernel_minor":"5", "pool_lv":"",
  "data_percent":"", "metadata_percent":"", "lv_metadata_size":"", "lv_when_full":"", "lv_health_status":""}
]}], "log": []}`

func thinPools(t *testing.T, m *Manager, changes ...string) []pool {
	t.Helper()
	_, logical, err := parseReport([]byte(strings.NewReplacer(changes...).Replace(thinReport)))
	must(t, err)
	return m.poolsOf(group{name: "g", region: "region0"}, logical)
}

// TestPools: what a pool holds, what is taken of it, and what can still be promised.
func TestPools(t *testing.T) {
	m := thinManager(t)
	const size, promised = 160 * volume.MiB, 440 * volume.MiB
	for _, c := range []struct {
		name    string
		changes []string
		state   device.PoolState
		room    int64
	}{
		{"half full", nil, device.PoolWell, 3*size - promised},
		{"nearly full", []string{"50.00", "80.00"}, device.PoolNearFull, 3*size - promised},
		{"too full for anything new", []string{"50.00", "90.00"}, device.PoolFilling, 0},
		{"metadata nearly full", []string{"12.50", "81.00"}, device.PoolNearFull, 3*size - promised},
		{"metadata too full", []string{"12.50", "95.10"}, device.PoolFilling, 0},
		{"full", []string{"50.00", "100.00"}, device.PoolFull, 0},
		{"out of data", []string{`"lv_when_full":"error", "lv_health_status":""`,
			`"lv_when_full":"error", "lv_health_status":"out_of_data"`}, device.PoolFull, 0},
		{"full of what was promised, and no more was", []string{"50.00", "100.00", `"lv_size":"419430400"`,
			`"lv_size":"125829120"`}, device.PoolWell, 2 * size},
		{"all promised", []string{`"lv_size":"419430400"`, `"lv_size":"461373440"`}, device.PoolWell, 0},
	} {
		pools := thinPools(t, m, c.changes...)
		if len(pools) != 1 {
			t.Fatalf("%s: %+v", c.name, pools)
		}
		p, r := pools[0], pools[0].report()
		if r.State() != c.state || p.room() != c.room || r.Data != size || r.Class != "thin" || r.Metadata != 4<<20 ||
			(r.Refuses() != nil) != (c.state == device.PoolFilling || c.state == device.PoolFull) {
			t.Errorf("%s: room for %d, %s, %+v", c.name, p.room(), r.State(), r)
		}
		if err := r.Refuses(); err != nil &&
			(!errors.Is(err, volume.ErrExhausted) || !strings.Contains(err.Error(), "pool0")) {
			t.Errorf("%s: refused with %v", c.name, err)
		}
	}
	pools := thinPools(t, m)
	if r := pools[0].report(); r.DataUsed != size/2 || r.MetadataUsed != 4<<20/8 || r.Virtual != promised {
		t.Errorf("%+v", r)
	}
	class := thinClass(m.config.Classes[1], pools)
	if class.Available != 3*size-promised || class.Capacity != 3*size || !class.Thin {
		t.Errorf("class: %+v", class)
	}
	if other := thinClass(Class{Name: "other", Thin: &ThinPool{Name: "other"}}, pools); other.Capacity != 0 {
		t.Errorf("a class without a pool: %+v", other)
	}
	m.config.Classes = m.config.Classes[:1]
	if p := thinPools(t, m)[0]; p.room() != 0 || p.report().Class != "" || p.report().Virtual != promised {
		t.Errorf("a pool whose class is not defined any more: %+v", p)
	}
}

func TestParsePercent(t *testing.T) {
	for _, bad := range []string{"many", "-1", "100.01", "NaN", "1e400"} {
		if _, _, err := parseReport([]byte(`{"report":[{"lv":[{"data_percent":"` + bad + `"}]}]}`)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, c := range []struct {
		part percent
		want int64
	}{{0, 0}, {0.01, 1}, {50, 50}, {99.99, 100}, {100, 100}} {
		if got := c.part.of(100); got != c.want {
			t.Errorf("%v of 100 is %d", c.part, got)
		}
	}
}

// TestThinArguments: what decides over data is said to lvm each time, whatever its configuration is.
func TestThinArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		has  []string
	}{
		{makePoolArgs("g", "pool0", 64<<20, 4<<20), []string{
			"lvcreate", "--type thin-pool", "--size 67108864b", "--poolmetadatasize 4194304b", "--zero y", "--chunksize 65536b",
			"--poolmetadataspare y", "--addtag splitfs.io.pool", "--name pool0 g",
		}},
		{makeThinArgs("g", "pool0", "v", 1<<30), []string{
			"--type thin", "--virtualsize 1073741824b", "--thinpool pool0", "--setactivationskip n", "--addtag splitfs.io ",
			"--name v g",
		}},
		{makeSnapshotArgs("g/v", "s"), []string{
			"--snapshot", "--setactivationskip n", "--addtag splitfs.io ", "--name s g/v",
		}},
	} {
		line := strings.Join(c.args, " ")
		for _, want := range c.has {
			if !strings.Contains(line, want) {
				t.Errorf("no %q in: %s", want, line)
			}
		}
	}
	if slices.Contains(makeSnapshotArgs("g/v", "s"), "--size") {
		t.Error("a snapshot with a size is no thin one")
	}
	if !strings.Contains(settings, "error_when_full=1") {
		t.Error("a full pool would hold writes back")
	}
}

func TestMetadataFor(t *testing.T) {
	for _, size := range []int64{minGroup, 1 << 30, 100<<30 + 1, 1 << 40, 64 << 40} {
		got := metadataFor(size)
		if got%extentSize != 0 || got < minMetadata || got > maxMetadata || got < maxMetadata && got*512 < size {
			t.Errorf("%d for %d", got, size)
		}
	}
}

// TestThinClassDefined: definitions that could not work are refused when the node service starts.
func TestThinClassDefined(t *testing.T) {
	for name, pool := range map[string]ThinPool{
		"no name": {Overprovision: 1}, "upper case": {Name: "Pool", Overprovision: 1},
		"lvm's own":     {Name: "snapshot1", Overprovision: 1},
		"like a volume": {Name: hereID, Overprovision: 1}, "like a snapshot": {Name: "splitfs-x", Overprovision: 1},
		"negative": {Name: "a", Size: -1, Overprovision: 1}, "less than all": {Name: "a", Overprovision: 0.5},
		"no number": {Name: "a", Overprovision: math.NaN()}, "absurd": {Name: "a", Overprovision: 1e6},
	} {
		if err := checkClasses([]Class{{Name: "c", Thin: &pool}}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	pool := &ThinPool{Name: "pool0", Overprovision: 2}
	if err := checkClasses([]Class{{Name: "a", Thin: pool}, {Name: "b", Thin: pool}}); err == nil {
		t.Error("two classes have one pool")
	}
	if err := checkClasses([]Class{{Name: "a", Thin: pool}, {Name: "b"}}); err != nil {
		t.Error(err)
	}
}

// TestThinView: thin volumes are emulated ones, are for no class that needs durable memory or erases, and others are
// what they were.
func TestThinView(t *testing.T) {
	m := thinManager(t)
	managers := device.NewManagers(m)
	for class, thin := range map[string]bool{"": true, "thin": true, "thick": false} {
		got, err := managers.GetFor(volume.DeviceLVM, class, volume.DurabilityAny)
		must(t, err)
		if device.IsThin(got) != thin || got.Emulated() != thin || got.Name() != volume.DeviceLVM {
			t.Errorf("%q: %T", class, got)
		}
		_, err = managers.GetFor(volume.DeviceLVM, class, volume.DurabilityRequired)
		if thin != (err != nil) || thin && (!errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), "DAX")) {
			t.Errorf("%q, durable: %v", class, err)
		}
	}
	for thin, rec := range map[bool]*volume.Record{
		false: {ID: "v", Device: volume.DeviceLVM}, true: {ID: "v", Device: volume.DeviceLVM, Thin: true},
	} {
		if got, err := managers.Of(rec); err != nil || got.Emulated() != thin {
			t.Errorf("%+v: %T, %v", rec, got, err)
		}
	}
	eraser, ok := m.Thin().(device.Eraser)
	if !ok || eraser.CheckErase(volume.EraseNone) != nil ||
		!errors.Is(eraser.CheckErase(volume.EraseOverwrite), volume.ErrInvalid) {
		t.Error("thin volumes are said to be erased")
	}
	if err := m.Thin().Create(context.Background(), "v", 1); err == nil {
		t.Error("a thin volume was made in no class")
	}
}

func TestNestsFreezes(t *testing.T) {
	for release, want := range map[string]bool{
		"6.1.0-56-amd64": false, "6.7.12": false, "6.8.0-1": true, "6.12.117+deb12-amd64": true, "7.0": true, "5.15.0": false,
		"": false, "linux": false,
	} {
		if nestsFreezes(release) != want {
			t.Errorf("%q: %t", release, !want)
		}
	}
}
