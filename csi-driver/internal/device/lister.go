// SPDX-License-Identifier: Apache-2.0

package device

import "context"

// Found is a device that exists, whether or not anybody knows of it.
type Found struct {
	// ID is the volume's.
	ID string
	// Where is what an operator would look at: a file, a logical volume, a namespace.
	Where string
	// Node is the path of the device node while the device is attached by Attach and would be detached by Detach; else "".
	Node string
}

// Lister is what a Manager can implement besides: with it devices are found that no volume's state knows.
type Lister interface {
	// List returns what it finds, and beside that an error when it could not look everywhere.
	List(ctx context.Context) ([]Found, error)
}
