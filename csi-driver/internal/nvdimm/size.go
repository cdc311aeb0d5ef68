// SPDX-License-Identifier: Apache-2.0

package nvdimm

import "fmt"

const (
	// HugePage is the largest unit that the processor maps at once; everything begins at multiples of it.
	HugePage = int64(2) << 20

	page = 4096
	// What the kernel keeps of each page, and in front of all that. It rounds the sum up to the namespace's alignment.
	pageStruct  = 64
	infoReserve = 8 << 10
)

// Map says where a namespace keeps what the kernel knows of its pages.
type Map string

// Maps of a namespace.
const (
	// MapDev keeps it in the persistent memory itself, 1/64 of it.
	MapDev Map = "dev"
	// MapMem keeps it in the machine's main memory, of the same size.
	MapMem Map = "mem"
)

// ParseMap checks the value of a flag.
func ParseMap(s string) (Map, error) {
	if m := Map(s); m == MapDev || m == MapMem {
		return m, nil
	}
	return "", fmt.Errorf("the page map of namespaces is %q; allowed: %s, %s", s, MapDev, MapMem)
}

// UsableSize returns how large the device of an fsdax namespace is that takes raw bytes of its region.
func UsableSize(raw int64, where Map) int64 {
	overhead := int64(infoReserve)
	if where == MapDev {
		overhead += (raw + page - 1) / page * pageStruct
	}
	return max(0, roundDown(raw-roundUp(overhead, HugePage), HugePage))
}

// RawSize returns how much of a region an fsdax namespace takes whose device has at least size bytes; a multiple of
// step.
func RawSize(size int64, where Map, step int64) int64 {
	raw := roundUp(size, step)
	for UsableSize(raw, where) < size {
		raw += max(step, roundUp(size-UsableSize(raw, where), step))
	}
	return raw
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }

func roundDown(n, step int64) int64 { return n / step * step }
