// SPDX-License-Identifier: Apache-2.0

package changes

import "context"

// FreeIn is for tests of what is not free.
func FreeIn(root int) (Ranges, error) {
	free, err := freeIn(context.Background(), root)
	return of(free), err
}

// Of is for tests of ranges.
func Of(parts ...Range) Ranges { return of(parts) }

// Knows says whether the last look found a file worth knowing.
func (t *Tracker) Knows(inode uint64) bool {
	f := t.files[inode]
	return f != nil && f.extents != nil
}

// Lies returns where a file lies.
func Lies(fd int) (Ranges, error) {
	extents, _, err := extentsOf(context.Background(), fd, 1<<20, false)
	return of(appendRanges(nil, extents)), err
}

// Unchanged is for tests of which bytes of a file are where they were and not marked. Each element is a unit of the
// file: where it lies, -1 for nowhere, and whether it is marked, which is known of the first units only.
func Unchanged(unit int64, before, now []int64, marked []bool) Ranges {
	lies := func(units []int64) (list []extent) {
		for i, at := range units {
			if at < 0 {
				continue
			}
			e := extent{offset: uint64(int64(i) * unit), physical: uint64(at * unit), length: uint64(unit)}
			if last := len(list) - 1; last >= 0 && list[last].offset+list[last].length == e.offset &&
				list[last].physical+list[last].length == e.physical {
				list[last].length += e.length
			} else {
				list = append(list, e)
			}
		}
		return list
	}
	m := &marks{unit: uint64(unit), units: uint64(len(marked)), set: make([]byte, (len(marked)+63)/64*8)}
	for i, is := range marked {
		if is {
			m.set[i/8] |= 1 << (i % 8)
		}
	}
	return of(appendRanges(nil, unchanged(lies(before), lies(now), m)))
}
