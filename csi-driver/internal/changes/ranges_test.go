// SPDX-License-Identifier: Apache-2.0

package changes_test

import (
	"math/rand/v2"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/changes"
)

// TestRanges: what is in parts, rounded inwards to whole grains, is in their ranges, and what is between is in the
// gaps.
func TestRanges(t *testing.T) {
	const grain, grains = 4096, 64
	for range 2000 {
		var in [grains]bool
		var parts []changes.Range
		for range rand.IntN(12) {
			from := rand.Int64N(grains * grain)
			end := min(from+rand.Int64N(16*grain), grains*grain)
			if rand.IntN(2) == 0 {
				from, end = from/grain*grain, end/grain*grain
			}
			parts = append(parts, changes.Range{From: from, End: end})
			for g := range in {
				in[g] = in[g] || from <= int64(g)*grain && int64(g+1)*grain <= end
			}
		}
		ranges := changes.Of(parts...)
		want := int64(0)
		for _, is := range in {
			if is {
				want += grain
			}
		}
		if ranges.Bytes() != want {
			t.Fatalf("%v of %v: %d bytes, not %d", ranges, parts, ranges.Bytes(), want)
		}
		for at := int64(0); ; {
			gap := ranges.Gap(at, grains*grain)
			for g := at / grain; g < gap.From/grain; g++ {
				if !in[g] {
					t.Fatalf("%v of %v: grain %d is in no gap", ranges, parts, g)
				}
			}
			for g := gap.From / grain; g < gap.End/grain; g++ {
				if in[g] {
					t.Fatalf("%v of %v: grain %d is in a gap", ranges, parts, g)
				}
			}
			if gap.From >= grains*grain {
				break
			}
			if gap.From == gap.End {
				t.Fatalf("%v of %v: an empty gap at %d", ranges, parts, gap.From)
			}
			at = gap.End
		}
	}
}
