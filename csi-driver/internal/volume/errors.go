// SPDX-License-Identifier: Apache-2.0

package volume

import "errors"

// What can be wrong with a request. Wrapped with %w where it happens and turned into a gRPC code once, at the edge.
var (
	ErrInvalid      = errors.New("invalid argument")
	ErrNotFound     = errors.New("not found")
	ErrExists       = errors.New("exists with other properties")
	ErrExhausted    = errors.New("not enough space")
	ErrOutOfRange   = errors.New("size out of range")
	ErrPrecondition = errors.New("not possible in this state")
	ErrBusy         = errors.New("operation in progress")
	ErrUnavailable  = errors.New("temporarily unavailable")
)
