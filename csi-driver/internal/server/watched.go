// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ErrNotYet: nobody has looked yet.
var ErrNotYet = errors.New("not looked at yet")

// WatchedCheck is a Check that answers at once, with what was found the last time: the programs that it takes may hang,
// and a probe that waits for them would fail although the driver works.
type WatchedCheck struct {
	check Check
	// Interval is between two looks, limit is how long one may take.
	interval, limit time.Duration

	mu    sync.Mutex
	err   error
	begun time.Time // of a look that is under way
}

// NewWatchedCheck returns a check that Run keeps up to date.
func NewWatchedCheck(check Check, interval, limit time.Duration) *WatchedCheck {
	return &WatchedCheck{check: check, interval: interval, limit: limit, err: ErrNotYet}
}

// Run looks again and again until ctx is done.
func (w *WatchedCheck) Run(ctx context.Context) {
	for ctx.Err() == nil {
		w.look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(w.interval):
		}
	}
}

func (w *WatchedCheck) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	w.mu.Lock()
	w.begun = time.Now()
	w.mu.Unlock()
	err := w.check(limited)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.err == nil {
		klog.FromContext(ctx).Error(err, "The driver cannot do its work")
	}
	w.err, w.begun = err, time.Time{}
}

// Check returns what the last look found.
func (w *WatchedCheck) Check(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun.IsZero() && time.Since(w.begun) > w.limit {
		return fmt.Errorf("the programs that show the node's devices have not answered for %s",
			time.Since(w.begun).Round(time.Second))
	}
	return w.err
}
