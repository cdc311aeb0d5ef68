// SPDX-License-Identifier: Apache-2.0

// Package watch looks at the processes of one pod in procfs for a while, to tell whether SplitFS would help them.
// Nobody is stopped or traced.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/attach"
	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// every is the time from one look to the next.
const every = 50 * time.Millisecond

// measureTimeout bounds measuring what calls cost.
const measureTimeout = 60 * time.Second

// Processes finds the processes of a pod.
type Processes interface {
	OfPod(uid string) ([]attach.PodProcess, error)
}

// Watcher watches pods of one node.
type Watcher struct {
	Node      string
	Processes Processes
	// Binary is the splitfs command, Directory where it measures what calls cost.
	Binary, Directory string

	mu    sync.Mutex
	costs *coverage.Costs
}

// Watch looks at the pod's processes for that time.
func (w *Watcher) Watch(ctx context.Context, uid string, duration time.Duration) (*coverage.Advice, error) {
	found, err := w.Processes.OfPod(uid)
	if err != nil {
		return nil, fmt.Errorf("find the processes of pod %s: %w", uid, err)
	}
	answer := &coverage.Advice{Node: w.Node, Processes: []coverage.Watched{}}
	watched := make([]*process, 0, len(found))
	for _, f := range found {
		p, err := begin(f)
		if err != nil {
			answer.Incomplete = err.Error()
			continue
		}
		watched = append(watched, p)
	}
	start := time.Now()
	if err := lookUntil(ctx, watched, start.Add(duration)); err != nil {
		return nil, err
	}
	answer.Seconds = time.Since(start).Seconds()
	for _, p := range watched {
		if seen, ok := p.end(); ok {
			answer.Processes = append(answer.Processes, seen)
		}
	}
	slices.SortFunc(answer.Processes, func(a, b coverage.Watched) int { return cmp.Compare(a.PID, b.PID) })
	answer.Costs, err = w.measured(ctx)
	if err != nil {
		answer.CostsUnknown = err.Error()
	}
	return answer, nil
}

func lookUntil(ctx context.Context, watched []*process, end time.Time) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		for _, p := range watched {
			p.look()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			if now.After(end) {
				return nil
			}
		}
	}
}

// measured says what calls cost here, which is measured once.
func (w *Watcher) measured(ctx context.Context) (*coverage.Costs, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.costs != nil {
		return w.costs, nil
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	costs := &coverage.Costs{}
	if err := command.RunJSON(ctx, costs, w.Binary, "advise", "--measure", "--json", "--dir", w.Directory); err != nil {
		return nil, fmt.Errorf("measure what calls cost: %w", err)
	}
	w.costs = costs
	return costs, nil
}
