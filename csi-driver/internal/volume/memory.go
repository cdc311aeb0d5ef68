// SPDX-License-Identifier: Apache-2.0

package volume

import "slices"

// Memory is what the memory behind a device is, in the words of `splitfs memory`.
type Memory string

// Kinds of memory, from the least on; docs/durability.md says what each is.
const (
	MemoryEmulated Memory = "emulated"
	MemoryVolatile Memory = "volatile"
	MemoryVirtio   Memory = "virtio"
	MemoryUnstated Memory = "unstated"
	MemoryGPF      Memory = "gpf"
	MemoryADR      Memory = "adr"
	MemoryEADR     Memory = "eadr"
)

var memories = []Memory{MemoryEmulated, MemoryVolatile, MemoryVirtio, MemoryUnstated, MemoryGPF, MemoryADR, MemoryEADR}

// Durable says whether what was stored there, and flushed where that is needed, survives a power failure. Words that
// are not known do not.
func (m Memory) Durable() bool { return slices.Index(memories, m) >= slices.Index(memories, MemoryGPF) }

// Stronger returns the one of two kinds that promises more.
func Stronger(a, b Memory) Memory {
	if slices.Index(memories, b) > slices.Index(memories, a) {
		return b
	}
	return a
}
