// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"slices"
)

// Erase is what becomes of a volume's bytes when it is deleted.
type Erase string

// What a StorageClass can ask for, from weak to strong; "" is EraseNone.
const (
	// EraseNone leaves the bytes in the space that is given back.
	EraseNone Erase = "none"
	// EraseDiscard tells the storage below that nobody needs the bytes any more.
	EraseDiscard Erase = "discard"
	// EraseOverwrite writes zeros over them.
	EraseOverwrite Erase = "overwrite"
)

var erases = []string{string(EraseNone), string(EraseDiscard), string(EraseOverwrite)}

// OrNone returns e with its default filled in.
func (e Erase) OrNone() Erase { return cmp.Or(e, EraseNone) }

// Wanted says whether anything is to be done.
func (e Erase) Wanted() bool { return e.OrNone() != EraseNone }

// WeakerThan says whether e leaves more behind than other does.
func (e Erase) WeakerThan(other Erase) bool {
	return slices.Index(erases, string(e.OrNone())) < slices.Index(erases, string(other.OrNone()))
}
