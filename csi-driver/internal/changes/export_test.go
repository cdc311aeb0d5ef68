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
	extents, _, err := extentsOf(context.Background(), fd, 1<<20)
	return of(appendRanges(nil, extents)), err
}
