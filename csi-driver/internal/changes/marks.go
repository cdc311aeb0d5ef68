// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EXT4_IOC_CHANGES and what belongs to it, of kernel-patch/uapi/ext4_changes.h. Only our own ext4 has the call.
const (
	ioctlChanges = 0xc0000000 | unsafe.Sizeof(changesCall{})<<16 | 'f'<<8 | 122

	changesVersion = 1
	changesStart   = 1
	changesTake    = 2

	// changesLargest is how many bytes a map has at most.
	changesLargest = 128 << 10
)

type changesCall struct {
	version, operation  uint32
	unit, units, marked uint64
	address, room       uint64
	_                   [2]uint64
}

// marks are which units of a file may have changed. The kernel marks them until the open file that it was asked by is
// closed; what is behind the last unit may always have changed.
type marks struct {
	unit, units uint64
	// set has a bit for each unit, the first the least of the first byte; taken has room for what the kernel says.
	set, taken []byte
}

func (c *changesCall) on(fd int) error {
	c.version = changesVersion
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlChanges, uintptr(unsafe.Pointer(c)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return fmt.Errorf("which ranges of a file change (EXT4_IOC_CHANGES): %w", errno)
		default:
			return nil
		}
	}
}

// startMarks has the kernel mark what changes from now on. Nil: nobody can, or somebody else has asked for it.
func startMarks(fd int) (*marks, error) {
	c := &changesCall{operation: changesStart}
	err := c.on(fd)
	for _, without := range []error{unix.ENOTTY, unix.EBUSY, unix.EPERM, unix.ENOMEM, unix.ETXTBSY} {
		if errors.Is(err, without) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	m := &marks{unit: c.unit, units: c.units}
	size := (c.units + 63) / 64 * 8
	if bits.OnesCount64(m.unit) != 1 || size > changesLargest {
		return nil, fmt.Errorf("EXT4_IOC_CHANGES: %d units of %d bytes", m.units, m.unit)
	}
	m.set, m.taken = make([]byte, size), make([]byte, size)
	return m, nil
}

// take adds what has been marked since the last time. It does not wait for a file system that is frozen.
func (m *marks) take(fd int) error {
	c := &changesCall{operation: changesTake, room: uint64(len(m.taken))}
	c.address = uint64(uintptr(unsafe.Pointer(&m.taken[0])))
	err := c.on(fd)
	runtime.KeepAlive(m)
	if err != nil || c.marked == 0 {
		return err
	}
	for i, b := range m.taken {
		m.set[i] |= b
	}
	return nil
}

// forget makes all units unmarked.
func (m *marks) forget() { clear(m.set) }

// find returns the first unit from one on that is marked, or is not; end if there is none before it.
func (m *marks) find(unit, end uint64, marked bool) uint64 {
	none := byte(0)
	if !marked {
		none = 0xff
	}
	for unit < end {
		b := m.set[unit/8]
		switch {
		case unit%8 == 0 && b == none:
			unit += 8
		case b>>(unit%8)&1 == 1 == marked:
			return unit
		default:
			unit++
		}
	}
	return end
}

// unmarked calls a function for each part of a range of the file that has not changed.
func (m *marks) unmarked(from, end uint64, each func(from, end uint64)) {
	end = min(end, m.units*m.unit)
	last := (end + m.unit - 1) / m.unit
	for unit := from / m.unit; unit < last; {
		unit = m.find(unit, last, false)
		next := m.find(unit, last, true)
		if part := max(from, unit*m.unit); part < min(end, next*m.unit) {
			each(part, min(end, next*m.unit))
		}
		unit = next
	}
}

// unchanged returns where bytes of a file lie that lay there before, and are not marked. Both lists are in the file's
// order.
func unchanged(before, now []extent, m *marks) []extent {
	var same []extent
	for len(before) > 0 && len(now) > 0 {
		b, n := before[0], now[0]
		from, end := max(b.offset, n.offset), min(b.offset+b.length, n.offset+n.length)
		// The place of the file's first byte, if the extent went so far; it may be less than 0 and wrap.
		if from < end && b.flags == n.flags && b.physical-b.offset == n.physical-n.offset {
			m.unmarked(from, end, func(from, end uint64) {
				same = append(same, extent{from, n.physical - n.offset + from, end - from, n.flags})
			})
		}
		if b.offset+b.length <= n.offset+n.length {
			before = before[1:]
		} else {
			now = now[1:]
		}
	}
	return same
}
