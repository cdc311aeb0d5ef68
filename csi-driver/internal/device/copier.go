// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
)

// ErrNotShared: devices of this kind cannot share what they hold.
var ErrNotShared = errors.New("storage cannot be shared")

// Copier is what a Manager can implement that has a better way to copy a device, for snapshots and clones, than byte by
// byte from one device node to another.
type Copier interface {
	// Reserve makes a device of at least size bytes for Share, in place of one that is there already, of an earlier call
	// that was interrupted. volume.ErrExhausted when there is no room.
	Reserve(ctx context.Context, from, to string, size int64) error
	// Share makes that device begin with what another one holds now, without copying. The caller sees to it that nobody
	// writes to that one meanwhile, which is short however large it is. ErrNotShared where storage cannot be shared.
	Share(ctx context.Context, from, to string) error
	// Unshare gives the copy storage of its own from a byte on, and says after each step how far it has come.
	Unshare(ctx context.Context, to string, start int64, done func(at int64) error) error
	// Resume is for a copy that an earlier process left unfinished: it may share with its original what is behind start,
	// and is to have size bytes. It is called before anybody is promised space.
	Resume(ctx context.Context, to string, start, size int64) error
}

// Filed is what a Manager implements whose devices are files.
type Filed interface {
	// File is where a device's bytes are, while it is attached and while it is not.
	File(id string) string
}

// Freezer is what a Manager implements whose Share freezes the file system that is on the device itself.
type Freezer interface {
	// NestsFreezes says whether it can do so while the file system is frozen already.
	NestsFreezes() bool
}
