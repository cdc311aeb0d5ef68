// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/splitfs"
)

// TestCumulative: a bucket counts in every bound that it does not exceed, and one without an end in none.
func TestCumulative(t *testing.T) {
	got := cumulative(splitfs.Latency{Timed: 15, Buckets: [][2]uint64{{32, 1}, {48, 2}, {64, 3}, {1 << 28, 4}, {0, 5}}})
	for bound, want := range map[uint64]uint64{32: 1, 64: 6, 128: 6, 1 << 27: 6, 1 << 28: 10} {
		if n, ok := got[float64(bound)/1e9]; !ok || n != want {
			t.Errorf("%d calls within %d ns (%t), wanted %d", n, bound, ok, want)
		}
	}
	if len(got) != 24 {
		t.Errorf("%d bounds", len(got))
	}
}
