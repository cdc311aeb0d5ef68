// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"splitfs.io/splitfs/csi-driver/internal/splitfs"
)

// The buckets that are shown: each ends at twice the time of the one before. The library has two for each of them.
const (
	firstBoundNS = 1 << 5
	lastBoundNS  = 1 << 28
)

var callSeconds = desc("call_seconds",
	"How long served calls took, of those that were timed: one of 128 reads and writes, one of 4 fsyncs.", "mode", "call")

func collectLatency(ch chan<- prometheus.Metric, latency map[string]map[string]splitfs.Latency,
	with func(...string) []string) {
	for _, mode := range slices.Sorted(maps.Keys(latency)) {
		for _, call := range slices.Sorted(maps.Keys(latency[mode])) {
			l := latency[mode][call]
			ch <- prometheus.MustNewConstHistogram(callSeconds, l.Timed, float64(l.SumNS)/1e9, cumulative(l),
				with(mode, call)...)
		}
	}
}

// cumulative returns how many calls took no longer than each bound, in seconds.
func cumulative(l splitfs.Latency) map[float64]uint64 {
	result := map[float64]uint64{}
	for bound := uint64(firstBoundNS); bound <= lastBoundNS; bound *= 2 {
		var n uint64
		for _, bucket := range l.Buckets {
			if end := bucket[0]; end != 0 && end <= bound {
				n += bucket[1]
			}
		}
		result[float64(bound)/1e9] = n
	}
	return result
}
