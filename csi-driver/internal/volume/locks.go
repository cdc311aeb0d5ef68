// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"sync"
)

// Locks gives each volume one lock, for every kind of operation on it. It never waits: a caller that repeats a call while the
// first is still at work is told so (gRPC Aborted) and comes back, instead of piling up behind it.
//
// Lock order: a volume's lock, then a device manager's own.
type Locks struct {
	mu   sync.Mutex
	held map[string]string
}

// TryLock takes the lock of a volume for an operation and returns its release, or ErrBusy.
func (l *Locks) TryLock(id, operation string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, busy := l.held[id]; busy {
		return nil, fmt.Errorf("volume %s: %w: %s", id, ErrBusy, other)
	}
	if l.held == nil {
		l.held = map[string]string{}
	}
	l.held[id] = operation
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, id)
	}, nil
}
