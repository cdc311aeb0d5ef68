// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is where some of a file's bytes lie on the device.
type extent struct {
	offset, physical, length uint64
	flags                    uint32
}

// FS_IOC_FIEMAP and what belongs to it, of linux/fiemap.h.
const (
	ioctlFiemap = 0xc020660b

	fiemapLast      = 0x1
	fiemapUnwritten = 0x800
	fiemapMerged    = 0x1000
	fiemapShared    = 0x2000

	// An extent with another flag than these is not at the place that it names, or not the only one there.
	fiemapPlain = fiemapLast | fiemapUnwritten | fiemapMerged | fiemapShared
	// Where the bytes are, and whether they count: the rest may differ from one time to the other.
	fiemapState = fiemapUnwritten | fiemapShared
)

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	start, length                 uint64
	flags, mapped, count, ignored uint32
	extents                       [512]fiemapExtent
}

// extentsOf returns where the bytes of a file lie; of those whose place nobody can say only if partly is false nothing
// is returned at all. False: that, or they are in more pieces than most.
func extentsOf(ctx context.Context, fd int, most int, partly bool) ([]extent, bool, error) {
	var list []extent
	for next := uint64(0); ; {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		m := fiemap{start: next, length: ^uint64(0) - next}
		m.count = uint32(len(m.extents))
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlFiemap, uintptr(unsafe.Pointer(&m)))
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return nil, false, fmt.Errorf("where a file lies (FS_IOC_FIEMAP): %w", errno)
		case m.mapped == 0:
			return list, true, nil
		}
		for _, e := range m.extents[:m.mapped] {
			plain := e.flags&^fiemapPlain == 0
			if !plain && !partly || len(list) == most {
				return nil, false, nil
			}
			if plain {
				list = append(list, extent{e.logical, e.physical, e.length, e.flags & fiemapState})
			}
			if e.flags&fiemapLast != 0 {
				return list, true, nil
			}
			next = e.logical + e.length
		}
	}
}
