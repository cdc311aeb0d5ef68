// SPDX-License-Identifier: Apache-2.0

package device

import "context"

// Copier is what a Manager can implement that has a better way to copy a device, for snapshots and clones, than byte by byte from one
// device node to another.
type Copier interface {
	// Copy makes a device of at least size bytes that begins with what another one holds now. The caller sees to it that nobody
	// writes to that one meanwhile. A device that is there already, of an earlier call that was interrupted, is replaced; it is not
	// attached. volume.ErrExhausted when there is no room. Unless share is set no storage may be shared, not even for a while: what is
	// written to storage that is shared goes elsewhere, and what was there can never be erased.
	Copy(ctx context.Context, from, to string, size int64, share bool) error
	// FinishCopy does what Copy could put off until the original may be written to again.
	FinishCopy(ctx context.Context, to string) error
}
