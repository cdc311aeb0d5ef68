// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Locks gives each volume one lock, for every kind of operation on it. Nobody waits for a call: a caller that repeats
// one while the first is still at work is told so (gRPC Aborted) and comes back, instead of piling up behind it. For a
// look that nobody asked for a call waits, for seconds at most.
//
// Lock order: a volume's lock, then a device manager's own.
type Locks struct {
	mu   sync.Mutex
	held map[string]*holder
}

// yieldTime is how long a call waits for a look to end that has been told to.
const yieldTime = 2 * time.Second

type holder struct {
	operation string
	giveUp    context.CancelFunc // of a look; nil for a call's own, to which all others have to come back
	released  chan struct{}
}

// TryLock takes the lock of a volume for an operation and returns its release, or ErrBusy.
func (l *Locks) TryLock(id, operation string) (release func(), err error) {
	return l.take(id, &holder{operation: operation})
}

// TryLockYielding is TryLock for a look at a volume that nobody asked for: ctx is done as soon as somebody calls
// TryLock, who waits a moment for the release.
func (l *Locks) TryLockYielding(parent context.Context,
	id, operation string) (ctx context.Context, release func(), err error) {
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
	var late <-chan time.Time
	for {
		other := l.insert(id, as)
		if other == nil {
			return func() { l.remove(id, as) }, nil
		}
		busy := fmt.Errorf("volume %s: %w: %s", id, ErrBusy, other.operation)
		if other.giveUp == nil || as.giveUp != nil {
			return nil, busy
		}
		other.giveUp()
		if late == nil {
			late = time.After(yieldTime)
		}
		select {
		case <-other.released:
		case <-late:
			return nil, busy // its program cannot even be killed: the device hangs
		}
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
