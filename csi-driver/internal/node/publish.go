// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// PublishRequest asks for a staged volume to be shown to a pod.
type PublishRequest struct {
	ID          string
	StagingPath string
	Target      string
	// Block asks for the device itself, as a file at Target.
	Block    bool
	ReadOnly bool
	// Exclusive refuses a second target while one is mounted.
	Exclusive bool
	Pod       volume.Pod
}

// Promises knows whether a pod has what it needs for what a volume's mode promises.
type Promises interface {
	// Check returns an error that says what to do when it has not, and else what becomes of the pod's programs without the
	// library.
	Check(ctx context.Context, use promise.Use) (contract.Unserved, error)
}

// Publish bind-mounts the data directory of a staged volume. Ownership and modes are kubelet's business
// (fsGroupPolicy).
func (n *Node) Publish(ctx context.Context, req PublishRequest) error {
	rec, err := n.get(req.ID)
	if err != nil {
		return err
	}
	if err := n.CheckUse(rec, req.Block, "", nil); err != nil {
		return err
	}
	if err := n.staged(rec, req.StagingPath); err != nil {
		return err
	}
	if err := n.refuseSecondTarget(rec, req); err != nil {
		return err
	}
	if rec.Block {
		return n.publishBlock(ctx, rec, req)
	}
	unserved, err := n.checkPromise(ctx, rec, req)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	// Without its agent the application would run with its guarantee kept by slower means, or, in strict mode, could not
	// write. An agent that was just restarted is worth waiting for; for a longer trouble kubelet calls again and the pod
	// shows why.
	wait, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	if err := n.agents.WaitReady(wait, rec.ID); err != nil {
		return fmt.Errorf("publish volume %s: %w: %w", rec.ID, volume.ErrUnavailable, err)
	}
	if req.Pod.UID != "" {
		if _, err := n.library.prepareForPod(req.Pod.UID); err != nil {
			return fmt.Errorf("publish volume %s: %w", rec.ID, err)
		}
	}
	if err := n.show(ctx, rec, req, n.data(rec), unserved); err != nil {
		return err
	}
	return n.showAgent(ctx, rec)
}

// checkPromise refuses a writer without the library where the volume's mode needs it. A pod that has the volume keeps
// it: kubelet repeats its calls when it was restarted.
func (n *Node) checkPromise(ctx context.Context, rec *volume.Record, req PublishRequest) (contract.Unserved, error) {
	if n.config.Promises == nil || req.ReadOnly {
		return "", nil
	}
	if before, again := rec.Published[req.Target]; again {
		if mounted, err := mounts.At(req.Target); err != nil || mounted != nil {
			return before.Unserved, err
		}
	}
	// Kubelet's target path is .../<name of the PersistentVolume>/mount.
	pv := filepath.Base(filepath.Dir(req.Target))
	return n.config.Promises.Check(ctx, promise.Use{
		VolumeID: rec.ID, Mode: rec.Mode, Unserved: rec.Unserved, PV: pv, Pod: req.Pod,
	})
}

// show records a target, with what becomes of programs without the library, and mounts source there.
func (n *Node) show(ctx context.Context, rec *volume.Record, req PublishRequest, source string,
	unserved contract.Unserved) error {
	if rec.Published == nil {
		rec.Published = map[string]volume.Publish{}
	}
	_, again := rec.Published[req.Target]
	rec.Published[req.Target] = volume.Publish{Pod: req.Pod, ReadOnly: req.ReadOnly, Unserved: unserved}
	if err := n.store.Put(rec); err != nil {
		return err
	}
	// Before the pod can start anything.
	if err := n.writePolicies(rec); err != nil {
		return err
	}
	var options []string
	if req.ReadOnly {
		options = []string{"ro"}
	}
	if err := n.mounter.Bind(ctx, source, req.Target, options); err != nil {
		// After a final error kubelet does not unpublish: nobody else would forget the target.
		return errors.Join(fmt.Errorf("publish volume %s: %w", rec.ID, err), n.forgetUnmounted(rec), n.writePolicies(rec))
	}
	if !again {
		n.notifyPod(ctx, rec, req.Pod)
	}
	klog.FromContext(ctx).V(2).Info("Published a volume", "target", req.Target, "read-only", req.ReadOnly,
		"pod", klog.KRef(req.Pod.Namespace, req.Pod.Name))
	return nil
}

// refuseSecondTarget keeps a volume for one pod, when that is what the claim asks for (ReadWriteOncePod).
func (n *Node) refuseSecondTarget(rec *volume.Record, req PublishRequest) error {
	if !req.Exclusive {
		return nil
	}
	if err := n.forgetUnmounted(rec); err != nil {
		return err
	}
	for target := range rec.Published {
		if target != req.Target {
			return fmt.Errorf("volume %s: %w: it is for one pod at a time and published at %s already", rec.ID,
				volume.ErrPrecondition, target)
		}
	}
	return nil
}

// staged says whether a volume is mounted at its staging path.
func (n *Node) staged(rec *volume.Record, path string) error {
	if rec.Staged == nil || rec.Staged.Path != path {
		return fmt.Errorf("volume %s: %w: it is not staged at %s", rec.ID, volume.ErrPrecondition, path)
	}
	if rec.Block {
		return nil // nothing is mounted for it before it is published
	}
	mounted, err := mounts.At(path)
	if err != nil {
		return err
	}
	if mounted == nil {
		return fmt.Errorf("volume %s: %w: nothing is mounted at %s", rec.ID, volume.ErrPrecondition, path)
	}
	return nil
}

// notifyPod repeats on the pod what its owner should know of the volume.
func (n *Node) notifyPod(ctx context.Context, rec *volume.Record, pod volume.Pod) {
	if manager, err := n.config.Managers.Of(rec); err == nil && manager.Emulated() {
		n.config.Events.OnPod(ctx, pod, false, events.ReasonEmulated, n.emulatedMessage(rec))
	}
	if message := n.lessDurableMessage(rec); message != "" {
		n.config.Events.OnPod(ctx, pod, rec.Mode != contract.Posix, events.ReasonLessDurable, message)
	}
	if rec.Recovery != nil && rec.Recovery.Quarantined > 0 {
		n.config.Events.OnPod(ctx, pod, true, events.ReasonQuarantined, quarantineMessage(rec))
	}
}

// Unpublish unmounts a target, whatever was published there. A target that is not there is unpublished already.
func (n *Node) Unpublish(ctx context.Context, id, target string) error {
	if err := n.mounter.Cleanup(target); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Unpublished a volume", "target", target)
	if !volume.ValidID(id) {
		return nil // an inline volume: it has no state
	}
	rec, err := n.store.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		return nil
	}
	if err != nil {
		// The pod has it no more, and must be able to end; who can read the state sees that nothing is mounted there.
		klog.FromContext(ctx).Error(err, "A volume's state still has a target that was unpublished", "target", target)
		return nil
	}
	if _, ok := rec.Published[target]; !ok {
		return nil
	}
	delete(rec.Published, target)
	if err := n.store.PutReleasing(rec); err != nil {
		return err
	}
	if err := n.showAgent(ctx, rec); err != nil {
		// Its pod is gone, so nobody sees what is shown in vain.
		klog.FromContext(ctx).Error(err, "Agent is shown to a pod that is gone", "volume-id", id)
	}
	return nil
}
