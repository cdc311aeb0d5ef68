// SPDX-License-Identifier: Apache-2.0

package coverage

import "testing"

// TestPercentile: ranks are rounded up, as in `splitfs status`: the 99th percentile of a few calls is the slowest one.
func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		buckets [][2]uint64
		percent uint64
		ns      uint64
		more    bool
	}{
		{nil, 50, 0, false},
		{[][2]uint64{{32, 1}}, 1, 32, false},
		{[][2]uint64{{32, 1}, {64, 1}}, 50, 32, false},
		{[][2]uint64{{32, 1}, {64, 1}}, 51, 64, false},
		{[][2]uint64{{32, 99}, {64, 1}}, 99, 32, false},
		{[][2]uint64{{32, 98}, {64, 2}}, 99, 64, false},
		{[][2]uint64{{32, 1}, {0, 1}}, 99, 1 << 28, true},
		{[][2]uint64{{0, 1}}, 50, 1 << 28, true},
	} {
		l := Latency{Buckets: c.buckets}
		for _, b := range c.buckets {
			l.Timed += b[1]
		}
		if ns, more := l.Percentile(c.percent); ns != c.ns || more != c.more {
			t.Errorf("p%d of %v is %d, %v", c.percent, c.buckets, ns, more)
		}
	}
}

// TestLatenciesSince: only what was timed in between counts, also in modes and kinds that are new.
func TestLatenciesSince(t *testing.T) {
	before := Latencies{"strict": {
		"append": {Timed: 5, Buckets: [][2]uint64{{32, 2}, {64, 3}}}, "read": {Timed: 1, Buckets: [][2]uint64{{32, 1}}},
	}}
	after := Latencies{
		"strict": {
			// One bucket went back: it was read while it changed.
			"append": {Timed: 9, Buckets: [][2]uint64{{32, 1}, {64, 5}, {0, 3}}},
			"read":   {Timed: 1, Buckets: [][2]uint64{{32, 1}}},
		},
		"posix": {"fsync": {Timed: 1, Buckets: [][2]uint64{{96, 1}}}},
	}
	got := after.Since(before)
	if l := got["strict"]["append"]; l.Timed != 5 || len(l.Buckets) != 2 || l.Buckets[0] != [2]uint64{64, 2} ||
		l.Buckets[1] != [2]uint64{0, 3} {
		t.Errorf("appends: %+v", l)
	}
	if _, ok := got["strict"]["read"]; ok || got["posix"]["fsync"].Timed != 1 {
		t.Errorf("got %+v", got)
	}
	if none := after.Since(after); len(none) != 0 {
		t.Errorf("nothing happened, and it says %+v", none)
	}
	if all := after.Since(nil); all["strict"]["append"].Timed != 9 {
		t.Errorf("without a look before: %+v", all)
	}
}
