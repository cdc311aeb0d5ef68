// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Eraser is what a Manager implements whose devices are erased otherwise than by writing zeros to their device nodes,
// or that can do more than that.
type Eraser interface {
	// CheckErase says whether devices that are made now can be erased so.
	CheckErase(how volume.Erase) error
	// Erase erases a device that nobody uses and returns when that is durable. Its space stays taken. Interrupted, it is
	// done again from the beginning. volume.ErrNotFound when there is no such device.
	Erase(ctx context.Context, id string, how volume.Erase) error
}
