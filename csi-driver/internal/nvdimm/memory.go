// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"context"
	"fmt"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Range is memory of the node, as `splitfs memory` shows it: a region, or volatile memory behind /dev/dax.
type Range struct {
	Name     string        `json:"name"`
	Provider string        `json:"provider"`
	Bytes    int64         `json:"bytes"`
	Memory   volume.Memory `json:"memory"`
	// Why says who told that.
	Why string `json:"why"`
}

// Less is the error of a region that a volume must not be made in, because it needs durable memory.
func (r Region) Less() error {
	if r.Memory.Durable() {
		return nil
	}
	return fmt.Errorf("its memory is %q (%s), and the volume's class needs memory that is durable; docs/durability.md "+
		"says what helps, durability: any in the class takes it as it is",
		r.Memory, r.MemoryWhy)
}

// LessDurable are the regions that a volume which needs durable memory must not be made in, of those that could hold
// one.
func LessDurable(regions []Region) (problems Problems) {
	for _, region := range regions {
		if region.Unfit() != nil {
			continue
		}
		if err := region.Less(); err != nil {
			problems = append(problems, Problem{Region: region.Dev, Err: err})
		}
	}
	return problems
}

// addMemory fills in what is known of each region's memory. A region that nobody speaks of is not durable.
func (t *Tool) addMemory(ctx context.Context, inventory Inventory) error {
	ranges := map[string]Range{}
	if t.Memory != nil && len(inventory.Regions()) > 0 {
		list, err := t.Memory(ctx)
		if err != nil {
			return fmt.Errorf("ask what the regions' memory is: %w", err)
		}
		for _, r := range list {
			ranges[r.Name] = r
		}
	}
	for i := range inventory {
		for j := range inventory[i].Regions {
			region := &inventory[i].Regions[j]
			if known, ok := ranges[region.Dev]; ok {
				region.Memory, region.MemoryWhy = known.Memory, known.Why
			} else {
				region.Memory, region.MemoryWhy = volume.MemoryUnstated, "nothing is known of it"
			}
		}
	}
	return nil
}
