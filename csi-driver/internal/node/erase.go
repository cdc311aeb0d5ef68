// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	// How long a volume whose bytes could not be erased waits until it is tried again, after the first failure and at
	// most.
	eraseRetry    = time.Second
	eraseRetryMax = 5 * time.Minute
	lockPoll      = 20 * time.Millisecond
)

// eraser erases what volumes and snapshots that were deleted had stored, one at a time. Which ones is in their records
// (PhaseErasing); what is kept here is only when to try again.
//
// It does not hold a volume's lock while it erases, which takes as long as the device is large: nobody else touches the
// device of a volume in PhaseErasing, and calls for it are answered at once.
type eraser struct {
	queue workqueue.TypedRateLimitingInterface[string]

	mu     sync.Mutex
	failed map[string]error
}

func newEraser() *eraser {
	return &eraser{
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](eraseRetry,
			eraseRetryMax)),
		failed: map[string]error{},
	}
}

// failure says why the last attempt to erase a volume failed; nil: it did not, or there was none.
func (e *eraser) failure(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed[id]
}

// setFailure keeps the outcome of an attempt and says whether it is another failure than that of the attempt before.
func (e *eraser) setFailure(id string, err error) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		delete(e.failed, id)
		return false
	}
	before := e.failed[id]
	e.failed[id] = err
	return before == nil || before.Error() != err.Error()
}

// checkErase says whether a manager's devices can be erased as a request asks for.
func checkErase(manager device.Manager, how volume.Erase) error {
	if eraser, ok := manager.(device.Eraser); ok {
		return eraser.CheckErase(how)
	}
	if how == volume.EraseDiscard {
		return fmt.Errorf("%w: %s devices are persistent memory, which knows no discard; set erase to %q or %q",
			volume.ErrInvalid, manager.Name(), volume.EraseOverwrite, volume.EraseNone)
	}
	return nil
}

// mustErase says whether the device of a volume that is to go may hold something that has to be erased.
func mustErase(rec *volume.Record) bool {
	switch rec.Phase {
	case volume.PhaseReady, volume.PhaseErasing:
		return rec.Erase.Wanted()
	case volume.PhaseCreating: // nobody had it, but a copy begins with what its original holds
		return rec.Erase.Wanted() && rec.Source != nil
	}
	return false // PhaseDeleting: it was done
}

// beginErasing hands a volume to the eraser. From here on it is deleted for everybody else.
func (n *Node) beginErasing(ctx context.Context, store *volume.Store, rec *volume.Record) error {
	if rec.Phase != volume.PhaseErasing {
		rec.HalfMade = rec.Phase == volume.PhaseCreating
		rec.Phase, rec.Staged, rec.Published = volume.PhaseErasing, nil, nil
		if err := store.PutReleasing(rec); err != nil {
			return err
		}
		klog.FromContext(ctx).V(2).Info("The bytes of a deleted volume will be erased", "volume-id", rec.ID,
			"erase", rec.Erase, "device-size", rec.DeviceSize)
	}
	n.eraser.queue.Add(rec.ID)
	return nil
}

// beingErased is the answer to who asks for a volume or snapshot that the eraser has.
func beingErased(id string) error {
	return fmt.Errorf("%s: %w: it was deleted, and its bytes are being erased", id, volume.ErrBusy)
}

// EraseDeleted erases what was deleted, until ctx is done. It takes the volumes' locks itself, for the moment in which
// it forgets them.
func (n *Node) EraseDeleted(ctx context.Context, locks *volume.Locks) {
	stop := context.AfterFunc(ctx, n.eraser.queue.ShutDown)
	defer stop()
	for {
		id, shutdown := n.eraser.queue.Get()
		if shutdown {
			return
		}
		err := n.eraseDeleted(ctx, locks, id)
		switch {
		case ctx.Err() != nil: // the next start goes on with it
		case err == nil:
			n.eraser.setFailure(id, nil)
			n.eraser.queue.Forget(id)
		default:
			n.reportEraseFailed(ctx, id, err)
			n.eraser.queue.AddRateLimited(id)
		}
		n.eraser.queue.Done(id)
	}
}

func (n *Node) reportEraseFailed(ctx context.Context, id string, err error) {
	if !n.eraser.setFailure(id, err) {
		return
	}
	klog.FromContext(ctx).Error(err, "Cannot erase the bytes of a deleted volume, trying again", "volume-id", id)
	n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonEraseFailed, eraseFailedMessage(id, n.config.Name, err))
}

func eraseFailedMessage(id, node string, err error) string {
	return fmt.Sprintf("%s was deleted, and its bytes cannot be erased on node %s: %v; its space stays taken, and it is "+
		"tried again until it works", id, node, err)
}

// eraseDeleted erases a volume's bytes, gives its space back, and forgets it.
func (n *Node) eraseDeleted(ctx context.Context, locks *volume.Locks, id string) error {
	store := n.storeOf(id)
	rec, err := store.Get(id)
	if err != nil {
		return ignoreNotFound(err)
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	phase := rec.Phase
	switch phase {
	case volume.PhaseErasing:
		if err := n.erase(ctx, manager, rec); err != nil {
			return err
		}
	case volume.PhaseDeleting: // it was erased
	default:
		return nil // calls that were repeated had left it in the queue, and it was made anew since
	}
	release, err := waitForLock(ctx, locks, id)
	if err != nil {
		return err
	}
	defer release()
	if rec, err = store.Get(id); err != nil {
		return ignoreNotFound(err)
	}
	if rec.Phase != phase {
		return nil // another one by now
	}
	// That it is erased is on disk before its device goes: without it a device that is not there would be a riddle.
	rec.Phase = volume.PhaseDeleting
	if err := store.PutReleasing(rec); err != nil {
		return err
	}
	if err := manager.Delete(ctx, id); err != nil {
		return err
	}
	if err := store.Remove(id); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Erased and deleted a volume", "volume-id", id, "erase", rec.Erase)
	return nil
}

// waitForLock waits until nobody is at a volume, for calls that come late do little to one that is erased.
func waitForLock(ctx context.Context, locks *volume.Locks, id string) (release func(), err error) {
	err = wait.PollUntilContextCancel(ctx, lockPoll, true, func(context.Context) (bool, error) {
		var busy error
		release, busy = locks.TryLock(id, "forget")
		return busy == nil, nil
	})
	return release, err
}

func (n *Node) erase(ctx context.Context, manager device.Manager, rec *volume.Record) error {
	if err := n.mounter.Cleanup(n.settlePath(rec.ID)); err != nil { // a copy may have been interrupted there
		return err
	}
	err := eraseDevice(ctx, manager, rec)
	if rec.HalfMade {
		return ignoreNotFound(err)
	}
	return err
}

func eraseDevice(ctx context.Context, manager device.Manager, rec *volume.Record) error {
	if eraser, ok := manager.(device.Eraser); ok {
		return eraser.Erase(ctx, rec.ID, rec.Erase)
	}
	dev, err := manager.Attach(ctx, rec.ID)
	if err != nil {
		return err
	}
	if err := setReadOnly(dev, false); err != nil { // a raw block volume's last reader may have left it so
		return err
	}
	return filesystem.Zero(ctx, dev, 0, filesystem.Whole)
}

// storeOf returns where the record of a volume or snapshot is.
func (n *Node) storeOf(id string) *volume.Store {
	if volume.ValidSnapshotID(id) {
		return n.snapshots
	}
	return n.store
}

// Erasure is a deleted volume or snapshot whose bytes are being erased.
type Erasure struct {
	ID string
	// Bytes is the space that is still taken.
	Bytes int64
	// Err says why the last attempt failed.
	Err error
}

// Erasures returns what is being erased, or waits for it: of the volumes that were reported, and of all snapshots.
func (n *Node) Erasures(reports []Report) ([]Erasure, error) {
	snapshots, err := n.snapshots.List()
	var list []Erasure
	add := func(rec *volume.Record) {
		if rec.Phase == volume.PhaseErasing {
			list = append(list, Erasure{ID: rec.ID, Bytes: rec.DeviceSize, Err: n.eraser.failure(rec.ID)})
		}
	}
	for _, r := range reports {
		add(r.Record)
	}
	for _, rec := range snapshots {
		add(rec)
	}
	return list, err
}

// resumeErasing gives the eraser what a service that ended had left to it.
func (n *Node) resumeErasing() error {
	var errs error
	for _, store := range []*volume.Store{n.store, n.snapshots} {
		records, err := store.List()
		errs = errors.Join(errs, err)
		for _, rec := range records {
			if rec.Phase == volume.PhaseErasing {
				n.eraser.queue.Add(rec.ID)
			}
		}
	}
	return errs
}
