// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"cmp"
	"slices"
)

// Range is a part of a device: the bytes from From on, up to End.
type Range struct{ From, End int64 }

// Ranges are parts of a device, in their order on it, none of which touches another.
type Ranges []Range

// grain is what ranges begin and end at: a device is read and written in such pieces.
const grain = 4096

// of makes Ranges of parts in any order. What is less than a whole grain at the edge of a part is left out.
func of(parts []Range) Ranges {
	whole := parts[:0]
	for _, p := range parts {
		p.From = (p.From + grain - 1) / grain * grain
		p.End = p.End / grain * grain
		if p.From < p.End {
			whole = append(whole, p)
		}
	}
	slices.SortFunc(whole, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	var out Ranges
	for _, p := range whole {
		if last := len(out) - 1; last >= 0 && p.From <= out[last].End {
			out[last].End = max(out[last].End, p.End)
		} else {
			out = append(out, p)
		}
	}
	return out
}

// Bytes is how many bytes the ranges have.
func (r Ranges) Bytes() int64 {
	var n int64
	for _, p := range r {
		n += p.End - p.From
	}
	return n
}

// Gap returns the first bytes from one on that are in none of the ranges, up to end; nothing is left when it is empty.
func (r Ranges) Gap(from, end int64) Range {
	i, found := slices.BinarySearchFunc(r, from, func(p Range, at int64) int { return cmp.Compare(p.End, at) })
	if found {
		i++ // the range that ends there is behind us
	}
	if i < len(r) && r[i].From <= from {
		from = r[i].End
		i++
	}
	if i < len(r) {
		end = min(end, r[i].From)
	}
	return Range{From: from, End: max(from, end)}
}
