// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// envClasses names two regions of persistent memory, the smaller one first, that these tests may change.
// csi-driver/test/vm-devices runs them in a virtual machine.
const envClasses = "SPLITFS_TEST_CLASSES"

const (
	classSpare  = 64 * volume.MiB
	classVolume = 32 * volume.MiB
)

func realRegions(t *testing.T) (near, far string) {
	t.Helper()
	near, far, ok := strings.Cut(os.Getenv(envClasses), ",")
	if !ok {
		t.Skip(envClasses +
			" gives no persistent memory to this test; csi-driver/test/vm-devices runs it in a virtual machine")
	}
	return near, far
}

func realManager(t *testing.T, classes ...Class) *Manager {
	t.Helper()
	m, err := New(Config{
		Regions: selector(t, nvdimm.All), Percent: 100, Map: nvdimm.MapDev, Classes: classes,
	}, &nvdimm.Tool{})
	if err == nil {
		err = m.Check(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// regionOf is where a volume's logical volume is, "" when there is none.
func regionOf(t *testing.T, m *Manager, id string) string {
	t.Helper()
	lv, err := m.find(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if lv == nil {
		return ""
	}
	return lv.group.region
}

// TestRealClasses: volumes of a class are made in its regions, and leave there what it spares, which others may have.
func TestRealClasses(t *testing.T) {
	near, far := realRegions(t)
	ctx := context.Background()
	m := realManager(t, Class{Name: "near", Regions: selector(t, near), Default: true},
		Class{Name: "far", Regions: selector(t, far), Spare: classSpare}, Class{Name: "both"})
	of := func(class string) device.Manager {
		t.Helper()
		manager, _, err := m.OfClass(class)
		if err != nil {
			t.Fatal(err)
		}
		return manager
	}
	room := func(class string) int64 {
		t.Helper()
		available, err := of(class).Available(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return available
	}
	whole := map[string]int64{"near": room("near"), "far": room("far"), "both": room("both")}
	if whole["both"] != whole["far"]+classSpare || whole["near"] == 0 || whole["near"] >= whole["far"] {
		t.Fatalf("what is there: %v", whole)
	}
	for class, region := range map[string]string{"": near, "near": near, "far": far, "both": far} {
		id := volume.IDFromName("of " + class)
		for range 2 {
			if err := of(class).Create(ctx, id, classVolume); err != nil {
				t.Fatalf("%q: %v", class, err)
			}
		}
		if got := regionOf(t, m, id); got != region {
			t.Errorf("a volume of class %q is in %q, wanted %q", class, got, region)
		}
		if err := m.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	id := volume.IDFromName("large")
	err := of("far").Create(ctx, id, whole["far"]+extentSize)
	if !errors.Is(err, volume.ErrExhausted) || !strings.Contains(err.Error(), `device class "far"`) {
		t.Errorf("a volume in what is to stay free: %v", err)
	}
	if err := of("both").Create(ctx, id, whole["far"]+extentSize); err != nil {
		t.Errorf("what one class spares is not there for another: %v", err)
	}
	if got := room("far"); got != 0 {
		t.Errorf("a class that has less than it is to spare has room for %d bytes", got)
	}
	classes, err := m.Classes(ctx)
	if err != nil || len(classes) != 3 || classes[1].Available != 0 || classes[0].Available != whole["near"] ||
		classes[2].Capacity < whole["both"]+whole["near"] {
		t.Errorf("classes: %+v, %v", classes, err)
	}
	if err := m.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if now := room("far"); now != whole["far"] {
		t.Errorf("%d bytes before and %d after", whole["far"], now)
	}
	if err := of("far").Create(ctx, volume.IDFromName("kept"), classVolume); err != nil {
		t.Fatal(err)
	}
}

// TestRealClassesAgain: after a reboot, and without any classes, a volume of one is there.
func TestRealClassesAgain(t *testing.T) {
	_, far := realRegions(t)
	ctx := context.Background()
	m, id := realManager(t), volume.IDFromName("kept")
	if got := regionOf(t, m, id); got != far {
		t.Fatalf("it is in %q", got)
	}
	path, err := m.Attach(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := errors.Join(m.Grow(ctx, id, 2*classVolume), m.Detach(ctx, id), m.Delete(ctx, id)); err != nil {
		t.Error(err)
	}
	if got := regionOf(t, m, id); got != "" {
		t.Errorf("it was deleted, and is in %q", got)
	}
}
