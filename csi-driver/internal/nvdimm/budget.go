// SPDX-License-Identifier: Apache-2.0

package nvdimm

import "fmt"

// CheckPercent refuses a share of a region that cannot be meant.
func CheckPercent(percent int) error {
	if percent < 1 || percent > 100 {
		return fmt.Errorf("the share of each region is %d percent; allowed: 1 to 100", percent)
	}
	return nil
}

// LargestRoom is the size of the largest namespace that the region has room for, as it is counted there.
func (r Region) LargestRoom() int64 { return roundDown(int64(r.MaxAvailableExtent), r.Step()) }

// Share is the driver's share of the region.
func (r Region) Share(percent int) int64 {
	size, share := int64(r.Size), int64(percent)
	return size/100*share + size%100*share/100
}

// Budget is what is left of the driver's share of the region, when its namespaces were made with this map.
func (r Region) Budget(percent int, where Map) int64 {
	left := r.Share(percent)
	for _, ns := range r.Used() {
		if !Own(ns.Name) {
			continue
		}
		if !ns.Enabled() || ns.Mode != ModeFSDAX {
			left -= int64(ns.Size) // listed as what it takes
			continue
		}
		if ns.Map != "" {
			where = Map(ns.Map)
		}
		left -= RawSize(int64(ns.Size), where, r.Step())
	}
	return max(0, roundDown(left, r.Step()))
}
