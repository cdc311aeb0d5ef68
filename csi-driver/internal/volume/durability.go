// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"

	"splitfs.io/splitfs/internal/contract"
)

// Durability is whether a volume may be made of memory of which nobody says that stores to it survive a power failure.
type Durability string

// What a StorageClass can ask for.
const (
	// DurabilityRequired: only on memory whose platform, or the administrator, says so.
	DurabilityRequired Durability = "required"
	// DurabilityAny: on whatever the device manager has.
	DurabilityAny Durability = "any"
)

var durabilities = []string{string(DurabilityRequired), string(DurabilityAny)}

// Required says whether only durable memory will do. A volume of a driver that did not know the parameter may be on
// any.
func (d Durability) Required() bool { return d == DurabilityRequired }

// OrAny returns d with its default filled in.
func (d Durability) OrAny() Durability { return cmp.Or(d, DurabilityAny) }

// WantedDurability is what the class says or, where it does not, this: a mode that promises more than fsync does wants
// memory that can keep it, where there is a choice. An emulated volume has none.
func (p Params) WantedDurability() Durability {
	switch {
	case p.Durability != "":
		return p.Durability
	case p.Device == DeviceEmulated || p.Mode == contract.Posix:
		return DurabilityAny
	}
	return DurabilityRequired
}
