// SPDX-License-Identifier: Apache-2.0

package volume

import "fmt"

const (
	// MiB is the granularity of volume sizes.
	MiB = int64(1) << 20
	// GiB is for defaults.
	GiB = int64(1) << 30

	// DefaultSize is what a request without a size gets.
	DefaultSize = GiB

	// maxSize keeps every later sum of sizes and overheads inside int64.
	maxSize = int64(1) << 60
)

// RoundUp rounds n up to the granularity of volume sizes.
func RoundUp(n int64) int64 { return (n + MiB - 1) / MiB * MiB }

// Size chooses the size of a volume from a request's limits (0: not given).
func Size(required, limit int64) (int64, error) {
	switch {
	case required < 0 || limit < 0:
		return 0, fmt.Errorf("%w: negative size (required %d, limit %d)", ErrInvalid, required, limit)
	case limit > 0 && required > limit:
		return 0, fmt.Errorf("%w: the required size %d is above the limit %d", ErrInvalid, required, limit)
	case required > maxSize:
		return 0, fmt.Errorf("%w: %d bytes is more than any node has", ErrOutOfRange, required)
	}
	size := RoundUp(required)
	if required == 0 {
		size = DefaultSize
		if limit > 0 && size > limit {
			size = limit / MiB * MiB
		}
	}
	if size == 0 || limit > 0 && size > limit {
		return 0, fmt.Errorf("%w: volume sizes are multiples of 1 MiB and none lies between %d and %d", ErrOutOfRange,
			required, limit)
	}
	return size, nil
}
