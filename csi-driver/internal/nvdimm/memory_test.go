// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"context"
	"errors"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestAddMemory: a region is what is said of it, and nothing that anybody relies on where nothing is said.
func TestAddMemory(t *testing.T) {
	inventory := func() Inventory {
		return Inventory{
			{Regions: []Region{{Dev: "region0"}, {Dev: "region1"}}},
			{Provider: providerVirtio, Regions: []Region{{Dev: "region2"}}},
		}
	}
	says := []Range{
		{Name: "region0", Memory: volume.MemoryADR, Why: "the platform"},
		{Name: "region2", Memory: volume.MemoryVirtio, Why: "the host"},
	}
	i := inventory()
	tool := &Tool{Memory: func(context.Context) ([]Range, error) { return says, nil }}
	if err := tool.addMemory(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	regions := i.Regions()
	if regions[0].Memory != volume.MemoryADR || regions[0].Less() != nil || regions[1].Memory != volume.MemoryUnstated ||
		regions[1].Less() == nil {
		t.Errorf("%+v", regions)
	}
	// virtio-pmem is never used: why it is not durable would say nothing new.
	if less := LessDurable(regions); len(less) != 1 || less[0].Region != "region1" ||
		!strings.Contains(less.Err().Error(), "durability: any") {
		t.Errorf("%v", less.Err())
	}
	tool.Memory = func(context.Context) ([]Range, error) { return nil, errors.New("broken") }
	if err := tool.addMemory(t.Context(), inventory()); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("nobody can say it: %v", err)
	}
	if err := tool.addMemory(t.Context(), nil); err != nil {
		t.Errorf("asked about no regions: %v", err)
	}
	i = inventory()
	if err := (&Tool{}).addMemory(t.Context(), i); err != nil || i.Regions()[0].Less() == nil {
		t.Errorf("nobody to ask: %+v, %v", i, err)
	}
}
