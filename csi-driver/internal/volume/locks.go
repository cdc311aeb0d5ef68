// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"sync"
)

// Locks gives each volume one lock, for every kind of operation on it. It never waits for a call: a caller that repeats one while the
// first is still at work is told so (gRPC Aborted) and comes back, instead of piling up behind it.
//
// Lock order: a volume's lock, then a device manager's own.
type Locks struct {
	mu   sync.Mutex
	held map[string]*holder
}

type holder struct {
	operation string
	giveUp    context.CancelFunc // nil: whoever else wants the lock is sent away
	released  chan struct{}
}

// TryLock takes the lock of a volume for an operation and returns its release, or ErrBusy.
func (l *Locks) TryLock(id, operation string) (release func(), err error) {
	return l.take(id, &holder{operation: operation})
}

// TryLockYielding is TryLock for a look at a volume that nobody asked for: ctx is done as soon as somebody calls TryLock, who waits for
// the release.
func (l *Locks) TryLockYielding(parent context.Context, id, operation string) (ctx context.Context, release func(), err error) {
	ctx, cancel := context.WithCancel(parent)
	unlock, err := l.take(id, &holder{operation: operation, giveUp: cancel})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() { cancel(); unlock() }, nil
}

func (l *Locks) take(id string, as *holder) (release func(), err error) {
	as.released = make(chan struct{})
	for {
		other := l.insert(id, as)
		switch {
		case other == nil:
			return func() { l.remove(id, as) }, nil
		case other.giveUp == nil || as.giveUp != nil:
			return nil, fmt.Errorf("volume %s: %w: %s", id, ErrBusy, other.operation)
		}
		other.giveUp()
		<-other.released
	}
}

// insert makes as the holder of the lock, if nobody is; else it returns who is.
func (l *Locks) insert(id string, as *holder) (other *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, busy := l.held[id]; busy {
		return other
	}
	if l.held == nil {
		l.held = map[string]*holder{}
	}
	l.held[id] = as
	return nil
}

func (l *Locks) remove(id string, as *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
	close(as.released)
}
