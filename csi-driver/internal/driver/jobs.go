// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/server"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// patience is how long a call waits for work that goes on without it. Small volumes are done before it ends.
const patience = 20 * time.Second

// Jobs are the works of calls, each of which may take longer than a call does: copies, and zeros over a device. The
// work goes on when a call's time is over, and a call that is repeated finds it. What survives the process is in the
// volumes' records.
type Jobs struct {
	ctx      context.Context
	patience time.Duration

	mu      sync.Mutex
	running map[string]*work
	// failed are the ends that no call was there to see; the next one is told.
	failed map[string]error
	group  sync.WaitGroup
}

type work struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// NewJobs returns an empty set. Works end when ctx is done.
func NewJobs(ctx context.Context) *Jobs {
	return &Jobs{ctx: ctx, patience: patience, running: map[string]*work{}, failed: map[string]error{}}
}

// do runs a work, or joins the one that an earlier call for the same ID began, and waits for a while. lock is taken
// before a new one begins, and released when it ends; a call that cannot have it returns its error. ended says whether
// err is the outcome.
func (j *Jobs) do(ctx context.Context, id string, lock func() (release func(), err error),
	do func(ctx context.Context) error) (ended bool, err error) {
	w, err := j.join(ctx, id, lock, do)
	if err != nil {
		return true, err
	}
	wait := time.NewTimer(j.patience)
	defer wait.Stop()
	select {
	case <-w.done:
		j.take(id)
		return true, w.err
	case <-wait.C:
	case <-ctx.Done():
	}
	return false, nil
}

func (j *Jobs) join(ctx context.Context, id string, lock func() (release func(), err error),
	do func(ctx context.Context) error) (*work, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if w, ok := j.running[id]; ok {
		return w, nil
	}
	if err, ok := j.failed[id]; ok {
		delete(j.failed, id)
		return nil, err
	}
	release, err := lock()
	if err != nil {
		return nil, err
	}
	own, cancel := context.WithCancel(klog.NewContext(j.ctx, klog.FromContext(ctx)))
	w := &work{cancel: cancel, done: make(chan struct{})}
	j.running[id] = w
	j.group.Go(func() {
		defer cancel()
		w.err = recovered(own, do)
		release()
		j.end(own, id, w)
	})
	return w, nil
}

// recovered turns a panic into an error.
func recovered(ctx context.Context, do func(ctx context.Context) error) (err error) {
	defer server.Recover(ctx, "Long work", &err)
	return do(ctx)
}

func (j *Jobs) end(ctx context.Context, id string, w *work) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, id)
	if w.err != nil && ctx.Err() == nil {
		j.failed[id] = w.err
		klog.FromContext(ctx).Error(w.err, "Long work failed", "volume-id", id)
	}
	close(w.done)
}

// take forgets an outcome that a call saw.
func (j *Jobs) take(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.failed, id)
}

// cancel ends the work on a volume or snapshot, if there is one, and returns when it has ended. Work on a device that
// does not answer may not end: the call has a deadline.
func (j *Jobs) cancel(ctx context.Context, id string) error {
	j.mu.Lock()
	w := j.running[id]
	delete(j.failed, id)
	j.mu.Unlock()
	if w == nil {
		return nil
	}
	w.cancel()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the work on %s: %w", id, ctx.Err())
	}
}

// Wait returns when all works have ended, which they do soon after the context of NewJobs is done.
func (j *Jobs) Wait() { j.group.Wait() }

// Resume goes on with the copies that were cut before the node service ended.
func (j *Jobs) Resume(n *node.Node, locks *volume.Locks) error {
	volumes, snapshots, err := n.Unfinished()
	start := func(rec *volume.Record, do func(ctx context.Context) error) {
		lock := func() (func(), error) { return locks.TryLock(rec.ID, "copy") }
		if _, err := j.join(j.ctx, rec.ID, lock, do); err != nil {
			klog.FromContext(j.ctx).Error(err, "Cannot go on with a copy", "volume-id", rec.ID)
		}
	}
	for _, rec := range volumes {
		start(rec, func(ctx context.Context) error { return n.FinishCopy(ctx, rec) })
	}
	for _, rec := range snapshots {
		start(rec, func(ctx context.Context) error {
			_, err := n.CreateSnapshot(ctx, rec.Name, rec.Source.VolumeID, nil)
			return err
		})
	}
	return err
}

// stillAtWork is the answer to a call whose work goes on: it has to be repeated.
func stillAtWork(n *node.Node, id string) error {
	progress := ""
	if rec := n.Working(id); rec != nil && rec.Job != nil {
		progress = fmt.Sprintf(": %d of %d MiB", rec.Job.Done/volume.MiB, rec.Job.Total/volume.MiB)
	}
	return fmt.Errorf("%s: %w: its bytes are being worked on%s; repeat the call", id, volume.ErrBusy, progress)
}
