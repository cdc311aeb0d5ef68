// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// envRefused names regions that cannot be used: a line "device REGION words of the reason" for each. What no line of a
// device names must be used by it, and what it uses is at least one region, unless envNone names the device.
const (
	envRefused = "SPLITFS_TEST_REFUSED"
	envNone    = "SPLITFS_TEST_NONE"
)

// nodeEvents keeps what is told about the node.
type nodeEvents struct {
	events.Discard
	told []string
}

func (e *nodeEvents) OnNode(_ context.Context, node string, warning bool, reason, message string) {
	if warning {
		message = "warning: " + message
	}
	e.told = append(e.told, node+" "+reason+" "+message)
}

// TestRealRefused: of all regions of the machine those that cannot be used are told, with the reason, in one event on
// the node and in the error of a volume that has no room; the others are used.
func TestRealRefused(t *testing.T) {
	list := os.Getenv(envRefused)
	if list == "" {
		t.Skip(envRefused + " names no region; csi-driver/test/vm-devices runs this test in a virtual machine")
	}
	for _, kind := range []string{volume.DeviceLVM, volume.DeviceNamespace} {
		refused := map[string]string{}
		for line := range strings.SplitSeq(list, "\n") {
			if words := strings.SplitN(line, " ", 3); len(words) == 3 && words[0] == kind {
				refused[words[1]] = words[2]
			}
		}
		t.Run(kind, func(t *testing.T) { realRefused(t, kind, refused) })
	}
}

func realRefused(t *testing.T, kind string, refused map[string]string) {
	ctx := context.Background()
	node := &nodeEvents{}
	o := deviceOptions{
		devices: []string{kind}, regions: []string{nvdimm.All}, regionPercent: 100, namespaceMap: string(nvdimm.MapDev),
	}
	managers, err := o.managers("node-1", node, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := managers.Get(kind)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // told once
		if err := m.Check(ctx); err != nil {
			t.Errorf("regions that cannot be used make the node unusable: %v", err)
		}
		if _, err := m.Available(ctx); err != nil {
			t.Error(err)
		}
	}
	if len(node.told) != 1 || !strings.HasPrefix(node.told[0], "node-1 "+events.ReasonRegionUnusable+" warning: ") {
		t.Fatalf("told: %q", node.told)
	}
	err = m.Create(ctx, volume.IDFromName("refused"), 1<<40)
	if !errors.Is(err, volume.ErrExhausted) {
		t.Fatalf("a volume larger than all memory: %v", err)
	}
	t.Logf("told: %s", node.told[0])
	for region, words := range refused {
		for what, text := range map[string]string{"event": node.told[0], "error": err.Error()} {
			_, text, found := strings.Cut(text, region+": ")
			text, _, _ = strings.Cut(text, "\n")
			if !found || !strings.Contains(text, words) {
				t.Errorf("the %s does not say %q of %s: %q", what, words, region, text)
			}
		}
	}
	checkRooms(t, m, refused, os.Getenv(envNone) == kind)
}

// checkRooms looks at every region of the machine: it has room, or it was told that it cannot be used.
func checkRooms(t *testing.T, m device.Manager, refused map[string]string, none bool) {
	t.Helper()
	ctx := context.Background()
	inventory, err := (&nvdimm.Tool{}).List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	regions, err := m.(device.Inventory).Regions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[string]int64{}
	for _, region := range regions {
		rooms[region.Name] = region.Available
	}
	used := 0
	for _, region := range inventory.Regions() {
		_, cannot := refused[region.Dev]
		if room := rooms[region.Dev]; (room > 0) == cannot {
			t.Errorf("%s has room for %d bytes; refused: %t", region.Dev, room, cannot)
		}
		if !cannot {
			used++
		}
	}
	if available, err := m.Available(ctx); err != nil || (available == 0) != none || (used == 0) != none {
		t.Errorf("%d bytes available in %d regions, %v", available, used, err)
	}
}
