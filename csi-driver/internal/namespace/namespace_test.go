// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func newManager(t *testing.T, percent int, regions ...string) *Manager {
	t.Helper()
	selector, err := nvdimm.ParseSelector(regions)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Regions: selector, Percent: percent, Map: nvdimm.MapMem}, &nvdimm.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// regions of 16 MiB steps: a has one extent of 512 MiB free, b of 128 MiB, c cannot be divided, d keeps no promise.
var regions = nvdimm.Inventory{{Regions: []nvdimm.Region{
	{Dev: "region0", ISetID: "0x1", Size: 1 << 30, Align: 16 << 20, MaxAvailableExtent: 512 << 20},
	{Dev: "region1", ISetID: "0x2", Size: 1 << 30, Align: 16 << 20, MaxAvailableExtent: 128<<20 + 4096},
	{Dev: "region2", Size: 1 << 30, Align: 16 << 20, MaxAvailableExtent: 1 << 30},
}}, {Provider: "virtio-pmem", Regions: []nvdimm.Region{
	{Dev: "region3", ISetID: "0x3", Size: 1 << 30, Align: 16 << 20, MaxAvailableExtent: 512 << 20},
}}}

func TestChoose(t *testing.T) {
	all := newManager(t, 100, nvdimm.All)
	for size, want := range map[int64]string{
		1: "region1", 126 << 20: "region1", 127 << 20: "region0", 510 << 20: "region0",
	} {
		region, raw, err := all.choose(regions, size, volume.DurabilityAny)
		if err != nil || region.Dev != want || nvdimm.UsableSize(raw, nvdimm.MapMem) < size {
			t.Errorf("%d bytes go to %s with %d, %v; wanted %s", size, region.Dev, raw, err, want)
		}
	}
	if region, _, err := all.choose(regions, 511<<20, volume.DurabilityAny); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("what does not fit goes to %s, %v", region.Dev, err)
	}
	if region, _, err := newManager(t, 10, nvdimm.All).choose(regions, 100<<20,
		volume.DurabilityAny); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("more than the driver's share goes to %s, %v", region.Dev, err)
	}
	if region, _, err := newManager(t, 100, "0x1").choose(regions, 1, volume.DurabilityAny); err != nil ||
		region.Dev != "region0" {
		t.Errorf("only region0 was given, chosen was %s, %v", region.Dev, err)
	}
	for name, why := range map[string]string{
		"region2": "region2: it has no labels", "region3": "region3: it is of virtio-pmem",
	} {
		if region, _, err := newManager(t, 100, name).choose(regions, 1,
			volume.DurabilityAny); !errors.Is(err, volume.ErrExhausted) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s was chosen, or nothing says why not: %v", region.Dev, err)
		}
	}
}

// TestChooseDurable: what needs durable memory is made where somebody says that it is, and the error says what the rest
// is.
func TestChooseDurable(t *testing.T) {
	inventory := nvdimm.Inventory{{Regions: []nvdimm.Region{
		{Dev: "region0", ISetID: "0x1", Size: 1 << 30, Align: 16 << 20, MaxAvailableExtent: 512 << 20,
			Memory: volume.MemoryUnstated, MemoryWhy: "nobody says it"},
		{Dev: "region1", ISetID: "0x2", Size: 1 << 30, Align: 16 << 20, MaxAvailableExtent: 1 << 30,
			Memory: volume.MemoryADR},
	}}}
	m := newManager(t, 100, nvdimm.All)
	for durability, want := range map[volume.Durability]string{
		volume.DurabilityAny: "region0", volume.DurabilityRequired: "region1",
	} {
		if region, _, err := m.choose(inventory, 1, durability); err != nil || region.Dev != want {
			t.Errorf("%s: %s, %v; wanted %s", durability, region.Dev, err, want)
		}
	}
	inventory[0].Regions[1].Memory = volume.MemoryVolatile
	_, _, err := m.choose(inventory, 1, volume.DurabilityRequired)
	if !errors.Is(err, volume.ErrExhausted) ||
		!strings.Contains(err.Error(), `region0: its memory is "unstated" (nobody says it)`) ||
		!strings.Contains(err.Error(), `region1: its memory is "volatile"`) {
		t.Errorf("nothing durable is there: %v", err)
	}
	if room := m.room(inventory[0].Regions[1], volume.DurabilityRequired); room != 0 {
		t.Errorf("%d bytes of volatile memory are offered", room)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{Percent: 100}, &nvdimm.Tool{}); err == nil {
		t.Error("no region was accepted")
	}
}

// TestHidden: while nobody can look, no namespace is said to be gone.
func TestHidden(t *testing.T) {
	ctx, id, m := context.Background(), volume.IDFromName("hidden"), newManager(t, 100, nvdimm.All)
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	disabled := `[{"provider":"ACPI.NFIT","regions":[{"dev":"region0","iset_id":1,"namespaces":[{"dev":"namespace0.0",` +
		`"mode":"fsdax","state":"disabled","name":"` + id + `"}]}]}]`
	for script, wrong := range map[string]string{
		"exit 0":                                 "",
		"echo broken memory >&2; exit 1":         "broken memory",
		"echo '[{'":                              "decode the list",
		"echo '" + disabled + "'; [ $1 = list ]": "release namespace namespace0.0",
	} {
		if err := os.WriteFile(filepath.Join(dir, "ndctl"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, attach := m.Attach(ctx, id)
		for call, err := range map[string]error{"delete": m.Delete(ctx, id), "attach": attach} {
			switch {
			case wrong != "" && (err == nil || errors.Is(err, volume.ErrNotFound) || !strings.Contains(err.Error(), wrong)):
				t.Errorf("%s after %q: %v; wanted %q", call, script, err, wrong)
			case wrong == "" && (call == "delete") != (err == nil):
				t.Errorf("%s where there is no persistent memory: %v", call, err)
			}
		}
	}
}
