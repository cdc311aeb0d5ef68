// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// TestDeviceOptions: what flags cannot mean is refused, and says what is allowed.
func TestDeviceOptions(t *testing.T) {
	for says, change := range map[string]func(o *deviceOptions){
		"--devices names nothing":           func(o *deviceOptions) { o.devices = nil },
		`names "nvdimm"; allowed: emulated`: func(o *deviceOptions) { o.devices = []string{"nvdimm"} },
		"set --regions":                     func(o *deviceOptions) { o.regions = nil },
		"--regions: \"pmem0\"":              func(o *deviceOptions) { o.regions = []string{"pmem0"} },
		"101 percent":                       func(o *deviceOptions) { o.regionPercent = 101 },
		"--namespace-map":                   func(o *deviceOptions) { o.namespaceMap = "disk" },
	} {
		for _, kind := range []string{volume.DeviceLVM, volume.DeviceNamespace} {
			o := deviceOptions{devices: []string{kind}, regions: []string{"all"}, regionPercent: 100, namespaceMap: "dev"}
			change(&o)
			err := o.complete()
			if err == nil {
				_, err = o.managers(contract.Driver, events.Discard{}, nil)
			}
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; wanted %q", kind, err, says)
			}
		}
	}
	o := deviceOptions{
		devices: deviceNames(), emulatedDir: t.TempDir(), emulatedCapacity: 1, regions: []string{"all"}, regionPercent: 50,
		namespaceMap: "mem",
	}
	managers, err := o.managers("node", events.Discard{}, nil)
	if err != nil || len(managers) != len(deviceNames()) {
		t.Fatalf("%v, %v", managers, err)
	}
	for name, m := range managers {
		if m.Name() != name || m.Emulated() != (name == volume.DeviceEmulated) {
			t.Errorf("%s is %s, emulated %t", name, m.Name(), m.Emulated())
		}
	}
}

// TestLVMClasses: device classes are as they are written down, and what is not meant is refused.
func TestLVMClasses(t *testing.T) {
	classes, err := parseClasses(`[{"name": "fast", "regions": ["region0", "0x2468"], "spare": "1Gi", "default": true},
		{"name": "rest"}]`, []string{"region0", "0x2468", "region1"})
	if err != nil || len(classes) != 2 || classes[0].Spare != volume.GiB || !classes[0].Default ||
		!classes[0].Regions.Selects(nvdimm.Region{Dev: "region0"}) ||
		classes[0].Regions.Selects(nvdimm.Region{Dev: "region1"}) ||
		!classes[1].Regions.Empty() {
		t.Errorf("%+v, %v", classes, err)
	}
	if classes, err := parseClasses("", nil); err != nil || classes != nil {
		t.Errorf("none are %+v, %v", classes, err)
	}
	for says, text := range map[string]string{
		"unknown field":     `[{"name": "a", "pool": "thin"}]`,
		"is not given":      `[{"name": "a", "regions": ["region7"]}]`,
		"spare":             `[{"name": "a", "spare": "much"}]`,
		"cannot unmarshal":  `{"name": "a"}`,
		"negative":          `[{"name": "a", "spare": "-1"}]`,
		"selects no region": `[{"name": "a", "regions": ["pmem0"]}]`,
	} {
		given := []string{"region0"}
		if says == "selects no region" {
			given = []string{nvdimm.All}
		}
		if _, err := parseClasses(text, given); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; wanted %q", text, err, says)
		}
	}
}

func TestReportRegion(t *testing.T) {
	all, err := nvdimm.ParseSelector([]string{nvdimm.All})
	if err != nil {
		t.Fatal(err)
	}
	old := "pvc-0d-" + strings.Repeat("0a", 28)
	region := nvdimm.Region{Dev: "region0", Provider: "CXL", Size: 1 << 30, Namespaces: []nvdimm.Namespace{
		{Dev: "namespace0.0", Name: "splitfs-lvm", Size: 1},
		{Dev: "namespace0.1", Name: old, Size: 1, Mode: "raw", State: "disabled"},
		{Dev: "namespace0.2", Name: "postgres", Size: 1}, {Dev: "namespace0.3"},
	}}
	r := reportRegion(context.Background(), region, all)
	var owners []string
	for _, n := range r.Namespaces {
		owners = append(owners, n.Owner)
	}
	if !slices.Equal(owners, []string{ownerSplitFS, ownerPMEMCSI, ownerOther}) || r.Namespaces[1].Mode != "disabled" ||
		!r.Selected || !strings.Contains(r.Note, "no labels") {
		t.Errorf("%+v", r)
	}
	var out strings.Builder
	if err := printRegions(&out, []regionReport{r}, nil); err != nil || !strings.Contains(out.String(), "(no labels)") ||
		!strings.Contains(out.String(), "\nregion0: no labels: ") || !strings.Contains(out.String(), "postgres") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	out.Reset()
	if err := printRegions(&out, nil, nil); err != nil || !strings.Contains(out.String(), "no persistent memory") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
