// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// OrphanKind says what was found that nothing accounts for.
type OrphanKind string

// Kinds of orphans.
const (
	OrphanDevice     OrphanKind = "device"     // a device without a state file
	OrphanAttachment OrphanKind = "attachment" // a device that is attached although its volume is not staged
	OrphanMount      OrphanKind = "mount"      // a volume that is mounted where neither staging nor publishing put it
	OrphanState      OrphanKind = "state"      // a volume without a PersistentVolume
)

// OrphanKinds are all kinds.
var OrphanKinds = []OrphanKind{OrphanDevice, OrphanAttachment, OrphanMount, OrphanState}

// Orphan is something that was left behind, or whose owner's memory was lost. It is reported and never removed: it may
// be all that is left of somebody's data.
type Orphan struct {
	Kind    OrphanKind
	ID      string
	Message string
}

const (
	orphanInterval = 10 * time.Minute
	// orphanLimit is how long a look may take: programs that list devices, and the API server, may not answer.
	orphanLimit = 2 * time.Minute
	claimGrace  = 10 * time.Minute
)

// Claims knows which volumes the cluster still has.
type Claims interface {
	// HasVolume says whether the PersistentVolume of that name has the volume with that ID.
	HasVolume(ctx context.Context, name, id string) (bool, error)
}

// FindOrphans looks for everything that was left behind on this node. What it could not look at is in the error.
func (n *Node) FindOrphans(ctx context.Context) ([]Orphan, error) {
	records, err := n.store.List()
	errs := []error{err}
	known := map[string]*volume.Record{}
	for _, rec := range records {
		known[rec.ID] = rec
	}
	snapshots, err := n.snapshots.List()
	errs = append(errs, err)
	for _, rec := range snapshots {
		known[rec.ID] = rec
	}
	var orphans []Orphan
	for name, manager := range n.config.Managers {
		lister, ok := manager.(device.Lister)
		if !ok {
			continue
		}
		found, err := lister.List(ctx)
		errs = append(errs, err)
		for _, d := range found {
			more, err := orphansOfDevice(name, d, known[d.ID])
			if len(more) > 0 {
				more = n.stillOrphans(name, d, more)
			}
			orphans, errs = append(orphans, more...), append(errs, err)
		}
	}
	more, err := n.volumesWithoutPV(ctx, records)
	return append(orphans, more...), errors.Join(append(errs, err)...)
}

// stillOrphans leaves out what calls have done since the records were read: listing devices can take long.
func (n *Node) stillOrphans(manager string, d device.Found, orphans []Orphan) []Orphan {
	rec, err := n.storeOf(d.ID).Get(d.ID)
	if err != nil && !errors.Is(err, volume.ErrNotFound) {
		return nil // it has a state file, which could not be read: who read all of them says so
	}
	now, err := orphansOfDevice(manager, d, rec)
	if err != nil {
		return nil // what was listed is gone
	}
	return slices.DeleteFunc(orphans, func(o Orphan) bool { return !slices.Contains(now, o) })
}

func orphansOfDevice(manager string, d device.Found, rec *volume.Record) ([]Orphan, error) {
	var orphans []Orphan
	add := func(kind OrphanKind, format string, args ...any) {
		orphans = append(orphans, Orphan{Kind: kind, ID: d.ID, Message: fmt.Sprintf(format, args...)})
	}
	if rec == nil {
		add(OrphanDevice,
			"%s device %s (%s) belongs to volume %s, of which this node has no state; its space stays taken. Restore the "+
				"state file, or delete the volume through its PersistentVolume",
			manager, d.Where, orNotAttached(d.Node), d.ID)
	}
	if d.Node == "" {
		return orphans, nil
	}
	if rec != nil && rec.Staged == nil && rec.Phase == volume.PhaseReady {
		add(OrphanAttachment,
			"%s is attached for volume %s, which is not staged; it is used again when the volume is staged, and goes when the "+
				"volume is unstaged or deleted", d.Node, d.ID)
	}
	major, minor, err := mounts.DeviceNumbers(d.Node)
	if err != nil {
		return orphans, err
	}
	all, err := mounts.OfDevice(major, minor)
	if err != nil {
		return orphans, err
	}
	for _, m := range all {
		if rec != nil {
			if _, published := rec.Published[m.MountPoint]; published || rec.Staged != nil && rec.Staged.Path == m.MountPoint {
				continue
			}
		}
		add(OrphanMount, "volume %s is mounted at %s, where no pod was promised it; unmount it there when nothing uses it",
			d.ID, m.MountPoint)
	}
	return orphans, nil
}

func orNotAttached(node string) string {
	if node == "" {
		return "not attached"
	}
	return "attached as " + node
}

// volumesWithoutPV finds volumes that no PersistentVolume leads to. csi-provisioner names the PersistentVolume as it
// names the volume.
func (n *Node) volumesWithoutPV(ctx context.Context, records []*volume.Record) ([]Orphan, error) {
	if n.config.Claims == nil {
		return nil, nil
	}
	var orphans []Orphan
	for _, rec := range records {
		if rec.Phase == volume.PhaseDeleting || rec.Phase == volume.PhaseErasing {
			continue
		}
		has, err := n.config.Claims.HasVolume(ctx, rec.Name, rec.ID)
		switch {
		case err != nil:
			// The next one would fail as well, after as long a wait.
			return orphans, fmt.Errorf("look for the PersistentVolume of volume %s: %w", rec.ID, err)
		case has:
			n.unclaimed.forget(rec.ID)
		case n.unclaimed.age(rec.ID, string(rec.Phase)) >= n.config.ClaimGrace:
			orphans = append(orphans, Orphan{Kind: OrphanState, ID: rec.ID, Message: fmt.Sprintf(
				"volume %s (%d MiB, made for the claim %s/%s) is here, and the cluster has no PersistentVolume %s for it; make "+
					"one with this name and volumeHandle to use or delete the volume",
				rec.ID, rec.Size/volume.MiB, rec.PVC.Namespace, rec.PVC.Name, rec.Name)})
		}
	}
	return orphans, nil
}

// reportOrphans looks for orphans and tells of those that were not known yet. Metrics show them as long as they are
// there.
func (n *Node) reportOrphans(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, orphanLimit)
	defer cancel()
	found, err := n.FindOrphans(limited)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look for everything that may have been left behind")
	}
	n.orphansMu.Lock()
	before := n.orphans
	n.orphans = found
	n.orphansMu.Unlock()
	for _, o := range found {
		if slices.Contains(before, o) {
			continue
		}
		klog.FromContext(ctx).Info("Found something that was left behind; it is not removed", "kind", o.Kind,
			"volume-id", o.ID, "what", o.Message)
		n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonOrphan, o.Message)
	}
}

// Orphans returns what the last look found.
func (n *Node) Orphans() []Orphan {
	n.orphansMu.Lock()
	defer n.orphansMu.Unlock()
	return slices.Clone(n.orphans)
}
