// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FS_IOC_GETFSMAP and what belongs to it, of linux/fsmap.h and ioctl_getfsmap(2).
const (
	ioctlGetfsmap = 0xc0c0583b

	fsmapSpecial = 0x10
	fsmapLast    = 0x20
	fsmapFree    = 1 // the owner of what nobody has
)

type fsmapRecord struct {
	device, flags                   uint32
	physical, owner, offset, length uint64
	_                               [3]uint64
}

type fsmap struct {
	iflags, oflags, count, entries uint32
	_                              [6]uint64
	keys                           [2]fsmapRecord
	records                        [1024]fsmapRecord
}

// freeIn returns which bytes of its device a mounted file system has no use for at the moment, nothing where it cannot
// say, and not all where they are in very many pieces. It may be frozen.
func freeIn(ctx context.Context, root int) ([]Range, error) {
	m := &fsmap{}
	m.count = uint32(len(m.records))
	m.keys[1] = fsmapRecord{
		device: ^uint32(0), flags: ^uint32(0), physical: ^uint64(0), owner: ^uint64(0), offset: ^uint64(0),
	}
	var free []Range
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(root), ioctlGetfsmap, uintptr(unsafe.Pointer(m)))
		switch {
		case errno == unix.EINTR:
			continue
		case errors.Is(errno, unix.ENOTTY), errors.Is(errno, unix.EOPNOTSUPP):
			return nil, nil
		case errno != 0:
			return nil, fmt.Errorf("which bytes are free (FS_IOC_GETFSMAP): %w", errno)
		case m.entries == 0:
			return free, nil
		}
		for _, r := range m.records[:m.entries] {
			// Another device than the one that is copied, an external journal, has no free space.
			if r.flags&fsmapSpecial != 0 && r.owner == fsmapFree && r.length >= piece && len(free) < mostExtents {
				free = append(free, Range{int64(r.physical), int64(r.physical + r.length)})
			}
		}
		last := m.records[m.entries-1]
		if last.flags&fsmapLast != 0 {
			return free, nil
		}
		m.keys[0] = last // the kernel goes on behind it
	}
}
