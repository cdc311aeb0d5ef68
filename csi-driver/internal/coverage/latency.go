// SPDX-License-Identifier: Apache-2.0

package coverage

// Latency is how long calls of one kind took, of those that were timed.
type Latency struct {
	Timed uint64 `json:"timed"`
	// Buckets are pairs, the shortest times first: where a bucket ends in ns (0: nowhere), and how many calls are in it.
	// Empty ones are left out.
	Buckets [][2]uint64 `json:"buckets"`
}

// Calls are the kinds of call that are timed, in the order in which they are shown.
func Calls() []string { return []string{"append", "overwrite", "read", "fsync"} }

// Latencies are those of a volume, by mode and kind of call.
type Latencies map[string]map[string]Latency

// Since returns what was timed after before. A bucket that went back, because it was read while it changed, has not
// moved. Modes and kinds of call of which nothing was timed are left out.
func (l Latencies) Since(before Latencies) Latencies {
	difference := Latencies{}
	for mode, calls := range l {
		for call, now := range calls {
			since := now.since(before[mode][call])
			if since.Timed == 0 {
				continue
			}
			if difference[mode] == nil {
				difference[mode] = map[string]Latency{}
			}
			difference[mode][call] = since
		}
	}
	return difference
}

func (l Latency) since(before Latency) Latency {
	counted := map[uint64]uint64{}
	for _, bucket := range before.Buckets {
		counted[bucket[0]] = bucket[1]
	}
	var difference Latency
	for _, bucket := range l.Buckets {
		if end, n := bucket[0], bucket[1]; n > counted[end] {
			difference.Timed += n - counted[end]
			difference.Buckets = append(difference.Buckets, [2]uint64{end, n - counted[end]})
		}
	}
	return difference
}

// endless is where the last bucket begins, in ns: the one that does not end.
const endless = 1 << 28

// Percentile returns the time in ns within which so many percent of the calls ended: the end of a bucket, as
// `splitfs status` has it. With more they took that time or longer. Nothing was timed when it is 0.
func (l Latency) Percentile(percent uint64) (ns uint64, more bool) {
	rank := (l.Timed*percent + 99) / 100
	var below uint64
	for _, bucket := range l.Buckets {
		if below += bucket[1]; below >= rank {
			if bucket[0] == 0 {
				return endless, true
			}
			return bucket[0], false
		}
	}
	return 0, false
}
