// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/selinux"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// StageRequest asks for a volume to be mounted and served.
type StageRequest struct {
	ID   string
	Path string
	// Block asks for a raw block volume. FSType is what the PersistentVolume says; empty: whatever the volume was made
	// for.
	Block      bool
	FSType     string
	MountFlags []string
}

// Stage attaches, formats (once), mounts, prepares and recovers a volume and starts its agent. Only when all of that is
// done may a pod see the volume.
func (n *Node) Stage(ctx context.Context, req StageRequest) error {
	rec, err := n.get(req.ID)
	if err != nil {
		return err
	}
	if err := n.CheckUse(rec, req.Block, req.FSType, req.MountFlags); err != nil {
		return err
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	if rec.Block {
		return n.stageBlock(ctx, manager, rec, req.Path)
	}
	if rec.Staged != nil && rec.Staged.Path != req.Path {
		if mounted, err := mounts.At(rec.Staged.Path); err != nil {
			return err
		} else if mounted != nil {
			return fmt.Errorf("volume %s: %w: it is staged at %s", rec.ID, volume.ErrPrecondition, rec.Staged.Path)
		}
	}
	before, err := mounts.At(req.Path)
	if err != nil {
		return err
	}
	ready, err := n.agents.Ready(ctx, rec.ID)
	if err != nil {
		return fmt.Errorf("stage volume %s: %w: %w", rec.ID, volume.ErrUnavailable, err)
	}
	if ready && before != nil && rec.Staged != nil && rec.Staged.Path == req.Path {
		// a service that ended in the middle may have come no further than to a mount, which has an agent now
		return n.makeData(rec)
	}
	rec.Staged = &volume.Staging{Path: req.Path}
	if err := n.store.Put(rec); err != nil {
		return err
	}
	if err := n.stage(ctx, manager, rec, req); err != nil {
		err = fmt.Errorf("stage volume %s: %w", rec.ID, err)
		if user, errUser := publishedAt(rec); errUser != nil || user != "" {
			return errors.Join(err, errUser) // a pod has it
		}
		// After a final error kubelet does not unstage: nobody else would undo this, nor what a call before it, whose service
		// was killed, had mounted.
		cleanup, cancel := detached(ctx)
		defer cancel()
		rec.StageFailure, rec.StageFailed = err.Error(), time.Now().UTC()
		return errors.Join(err, n.takeDown(cleanup, manager, rec))
	}
	klog.FromContext(ctx).V(2).Info("Staged a volume", "path", req.Path)
	return nil
}

func (n *Node) stage(ctx context.Context, manager device.Manager, rec *volume.Record, req StageRequest) error {
	dev, err := manager.Attach(ctx, rec.ID)
	if err != nil {
		return err
	}
	if err := n.makeFileSystem(ctx, dev, rec); err != nil {
		return err
	}
	if mounted, err := mounts.At(req.Path); err != nil {
		return err
	} else if mounted == nil {
		if err := filesystem.Check(ctx, dev, rec.FSType); err != nil {
			return err
		}
	}
	if err := n.mount(ctx, manager, dev, rec, req); err != nil {
		return err
	}
	if err := labelRoot(n.root(rec)); err != nil {
		return err
	}
	if err := n.ensureRoom(ctx, manager, dev, rec); err != nil {
		return err
	}
	if err := n.makeData(rec); err != nil {
		return err
	}
	return n.serve(ctx, rec)
}

// labelRoot lets programs of pods use the descriptors of logs and staging files that an agent gives them, on a node
// with SELinux, where kubelet has not mounted the whole volume with the pod's label. What pods reach by a name, below
// data/, the container runtime labels.
func labelRoot(root string) error {
	if err := selinux.Label(root, selinux.ReadWrite); err != nil {
		return err
	}
	return selinux.LabelTree(filepath.Join(root, controlDir), selinux.ReadWrite)
}

// makeData makes the directory of a volume that its pods see.
func (n *Node) makeData(rec *volume.Record) error {
	if err := os.Mkdir(n.data(rec), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the data directory: %w", err)
	}
	return nil
}

// makeFileSystem formats a device that never was, and makes sure that one that was still carries its file system. A
// device that lost it is an accident to be looked at; formatting it would end all hope.
func (n *Node) makeFileSystem(ctx context.Context, dev string, rec *volume.Record) error {
	if rec.Formatted {
		fsType, err := filesystem.Type(ctx, dev)
		if err != nil {
			return err
		}
		if fsType != rec.FSType {
			return fmt.Errorf(
				"%w: %s was formatted as %s and now shows %q; it is not formatted again, because that would destroy what is left",
				volume.ErrPrecondition, dev, rec.FSType, fsType)
		}
		return nil
	}
	if err := filesystem.Format(ctx, dev, rec.FSType); err != nil {
		return err
	}
	rec.Formatted = true
	return n.store.Put(rec)
}

// ensureRoom measures a new file system and grows it until it holds what was promised, with pool and logs on top.
func (n *Node) ensureRoom(ctx context.Context, manager device.Manager, dev string, rec *volume.Record) error {
	const rounds = 4 // each one adds what the round before was short of; the second already finds enough
	for range rounds {
		if rec.Measured >= rec.Size {
			return nil
		}
		usage, err := filesystem.Measure(n.root(rec))
		if err != nil {
			return err
		}
		missing := rec.Size + rec.Overhead - usage.Available
		if missing <= 0 {
			rec.Measured = rec.Size
			return n.store.Put(rec)
		}
		klog.FromContext(ctx).V(2).Info("The new file system is short of room, growing it", "missing", missing)
		if err := n.growDevice(ctx, manager, dev, rec, rec.DeviceSize+volume.RoundUp(missing+missing/8)); err != nil {
			return err
		}
	}
	return fmt.Errorf("the file system on %s stays smaller than the %d bytes that were promised", dev, rec.Size)
}

// growDevice grows a device that is smaller than size, and the file system to all of it. The record follows the device:
// that it says more than there is would be taken for true by who copies the volume, and by who asks for room the next
// time. That a device is larger than its record says harms nobody.
func (n *Node) growDevice(ctx context.Context, manager device.Manager, dev string, rec *volume.Record,
	size int64) error {
	size = max(size, rec.DeviceSize)
	if err := manager.Grow(ctx, rec.ID, size); err != nil {
		return err
	}
	if size > rec.DeviceSize {
		rec.DeviceSize = size
		if err := n.store.Put(rec); err != nil {
			return err
		}
	}
	if rec.Block {
		return nil
	}
	return filesystem.Grow(ctx, dev, n.root(rec), rec.FSType)
}

// serve prepares and recovers a mounted volume and starts its agent. With an agent that is up there is nothing to do,
// and recovery would rightly refuse.
func (n *Node) serve(ctx context.Context, rec *volume.Record) error {
	if ready, err := n.agents.Ready(ctx, rec.ID); err != nil || ready {
		return err
	}
	// An agent that is between two restarts holds no lock now but may any moment.
	if err := n.agents.Stop(ctx, rec.ID); err != nil {
		return err
	}
	if err := n.config.CLI.Prepare(ctx, n.root(rec), n.poolServed(rec)); err != nil {
		return err
	}
	result, err := n.config.CLI.Recover(ctx, n.root(rec))
	if err != nil {
		return err
	}
	rec.Recovery, rec.StageFailure, rec.StageFailed = result, "", time.Time{}
	rec.Quarantined = volume.Quarantined{Counted: rec.Quarantined.Counted + result.Quarantined}
	if err := n.store.Put(rec); err != nil {
		return err
	}
	n.reportRecovery(ctx, rec)
	if err := n.writePolicies(rec); err != nil {
		return err
	}
	if err := n.agents.Start(ctx, rec.ID, n.served(rec)); err != nil {
		return err
	}
	return n.learnMemory(ctx, rec)
}

func (n *Node) reportRecovery(ctx context.Context, rec *volume.Record) {
	r := rec.Recovery
	klog.FromContext(ctx).V(2).Info("Recovered a volume", "logs", r.Logs, "records", r.Records, "replayed", r.Replayed,
		"bytes", r.Bytes, "ignored", r.Ignored, "files", r.Files, "quarantined", r.Quarantined)
	switch {
	case r.Quarantined > 0:
		n.notifyUsers(ctx, rec, true, events.ReasonQuarantined, quarantineMessage(rec))
	case r.Replayed > 0:
		n.notifyUsers(ctx, rec, false, events.ReasonRecovered,
			fmt.Sprintf("recovery of volume %s replayed %d writes (%d bytes) into %d files", rec.ID, r.Replayed, r.Bytes,
				r.Files))
	}
}

func quarantineMessage(rec *volume.Record) string {
	return fmt.Sprintf("recovery of volume %s set %d damaged or foreign log files aside; what they held is not in the "+
		"files. Everything else was replayed. Look at them with `splitfs status`",
		rec.ID, rec.Recovery.Quarantined)
}

// Unstage undoes Stage. It refuses while the volume is mounted anywhere else, because the agent must outlive its users.
func (n *Node) Unstage(ctx context.Context, id, path string) error {
	rec, err := n.store.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		return n.mounter.Cleanup(path)
	}
	if err != nil {
		return err
	}
	if rec.Staged != nil && rec.Staged.Path != path || rec.Phase == volume.PhaseErasing {
		return n.mounter.Cleanup(path) // it was staged elsewhere since, or deleted; only this path is to be cleaned
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	if rec.Block {
		if err := refuseWhileBlockPublished(rec); err != nil {
			return err
		}
	} else if mounted, err := mounts.At(path); err != nil {
		return err
	} else if mounted != nil {
		if err := n.refuseWhilePublished(rec, mounted); err != nil {
			return err
		}
	}
	rec.Staged = &volume.Staging{Path: path} // a call that is repeated after a crash still knows what to take down
	if err := n.takeDown(ctx, manager, rec); err != nil {
		return fmt.Errorf("unstage volume %s: %w", id, err)
	}
	klog.FromContext(ctx).V(2).Info("Unstaged a volume", "path", path)
	return nil
}

func (n *Node) refuseWhilePublished(rec *volume.Record, mounted *mountutils.MountInfo) error {
	all, err := mounts.OfDevice(uint32(mounted.Major), uint32(mounted.Minor))
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, published := rec.Published[m.MountPoint]; published {
			return fmt.Errorf("volume %s: %w: it is still published at %s", rec.ID, volume.ErrPrecondition, m.MountPoint)
		}
	}
	return nil
}

// takeDown stops the agent, unmounts and detaches, in this order, each step only after the one before succeeded.
func (n *Node) takeDown(ctx context.Context, manager device.Manager, rec *volume.Record) error {
	path := rec.Staged.Path
	if err := n.agents.Stop(ctx, rec.ID); err != nil {
		return err
	}
	if err := n.mounter.Cleanup(path); err != nil {
		return err
	}
	if rec.Block {
		if err := allowWrites(ctx, manager, rec.ID); err != nil {
			return err
		}
	}
	if err := manager.Detach(ctx, rec.ID); err != nil {
		return err
	}
	rec.Staged = nil
	return n.store.PutReleasing(rec)
}
