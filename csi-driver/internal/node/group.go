// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// A group of snapshots is cut when the records of all its snapshots say that they are: the last of these writes is the
// moment at which the group comes into being. One that is interrupted before is made anew by the call that is repeated,
// and nobody sees the snapshots that it has so far.

// GroupMemberID is the ID of the snapshot of a volume in a group of this name.
func (n *Node) GroupMemberID(group, sourceID string) string {
	return volume.SnapshotID(memberName(group, sourceID), n.config.Name)
}

// memberName names a snapshot of a group: no name that a caller chooses for one on its own.
func memberName(group, sourceID string) string { return group + "/" + sourceID }

// isCut says whether a snapshot is there, whole or not yet.
func isCut(rec *volume.Record) bool {
	return rec.Phase == volume.PhaseReady || rec.Cut && rec.Phase == volume.PhaseCreating
}

// wholeGroups returns the IDs of the groups of which all snapshots are cut.
func wholeGroups(all []*volume.Record) map[string]bool {
	cut := map[string]int{}
	for _, rec := range all {
		if rec.Group != nil && isCut(rec) {
			cut[rec.Group.ID]++
		}
	}
	whole := map[string]bool{}
	for _, rec := range all {
		if rec.Group != nil && cut[rec.Group.ID] == len(rec.Group.Sources) {
			whole[rec.Group.ID] = true
		}
	}
	return whole
}

// members returns the records of a group's snapshots, in the order of their volumes.
func (n *Node) members(groupID string) ([]*volume.Record, error) {
	all, err := n.snapshots.List()
	if err != nil {
		return nil, err // one that cannot be read may be one of them
	}
	all = slices.DeleteFunc(all, func(r *volume.Record) bool { return r.Group == nil || r.Group.ID != groupID })
	slices.SortFunc(all, func(a, b *volume.Record) int { return strings.Compare(a.Source.VolumeID, b.Source.VolumeID) })
	return all, nil
}

// CreateGroupSnapshot makes a snapshot of each of the volumes, all of one moment, or finds those that an earlier call
// for the same name made. All are there or none. released, which can be nil, is called when the volumes are not needed
// any more.
func (n *Node) CreateGroupSnapshot(ctx context.Context, name string, sourceIDs []string,
	released func()) ([]*volume.Record, error) {
	group := volume.Group{
		ID: volume.GroupID(name, n.config.Name), Name: name, Sources: slices.Sorted(slices.Values(sourceIDs)),
	}
	records, err := n.members(group.ID)
	if err != nil {
		return nil, err
	}
	if err := checkGroup(group, records); err != nil {
		return nil, err
	}
	if !wholeGroups(records)[group.ID] {
		if records, err = n.cutGroup(ctx, group, records); err != nil {
			return nil, fmt.Errorf("snapshot volumes %s together: %w", strings.Join(group.Sources, ", "), err)
		}
	}
	if released != nil {
		released()
	}
	for _, rec := range records {
		if rec.Phase == volume.PhaseReady {
			continue
		}
		if err := n.finishCut(ctx, n.snapshots, rec); err != nil {
			return nil, fmt.Errorf("snapshot volume %s: %w", rec.Source.VolumeID, err)
		}
		rec.Phase, rec.Cut = volume.PhaseReady, false
		if err := n.snapshots.Put(rec); err != nil {
			return nil, err
		}
	}
	klog.FromContext(ctx).V(2).Info("Made a group of snapshots", "group-id", group.ID, "volumes", len(records))
	return records, nil
}

// checkGroup says whether what there is of a group is what a call asks for, and can be gone on with.
func checkGroup(group volume.Group, records []*volume.Record) error {
	for _, rec := range records {
		switch {
		case !slices.Equal(rec.Group.Sources, group.Sources):
			return fmt.Errorf("group snapshot %q %w: it is one of the volumes %s", group.Name, volume.ErrExists,
				strings.Join(rec.Group.Sources, ", "))
		case rec.Phase == volume.PhaseDeleting:
			return fmt.Errorf("group snapshot %s: %w: it is being deleted", group.ID, volume.ErrBusy)
		case rec.Phase == volume.PhaseErasing:
			return beingErased("group snapshot " + group.ID)
		case rec.Phase == volume.PhaseReady && len(records) != len(group.Sources):
			return fmt.Errorf("group snapshot %s: %w: %d of its %d snapshots are left; delete it", group.ID,
				volume.ErrPrecondition, len(records), len(group.Sources))
		}
	}
	return nil
}

// cutGroup cuts all snapshots of a group; before is what an interrupted call left of them.
func (n *Node) cutGroup(ctx context.Context, group volume.Group, before []*volume.Record) ([]*volume.Record, error) {
	sources, err := n.groupSources(group)
	if err != nil {
		return nil, n.originalGone(ctx, err, before...)
	}
	records := make([]*volume.Record, 0, len(sources))
	for _, source := range sources {
		rec, err := n.beginMember(ctx, group, source, before)
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	for _, rec := range records { // before anything is made: deleting the group finds it
		if err := n.snapshots.Put(rec); err != nil {
			return nil, err
		}
	}
	if err := n.cutMembers(ctx, sources, records); err != nil {
		for _, rec := range records {
			err = n.copyFailed(ctx, n.snapshots, rec, err)
		}
		return nil, err
	}
	for _, rec := range records {
		rec.Cut, rec.Job = true, nil
	}
	for _, rec := range records {
		if err := n.snapshots.Put(rec); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// groupSources returns the volumes of a group, all of which have to be here.
func (n *Node) groupSources(group volume.Group) ([]*volume.Record, error) {
	var sources []*volume.Record
	var missing []string
	for _, id := range group.Sources {
		source, err := n.get(id)
		if errors.Is(err, volume.ErrNotFound) {
			missing = append(missing, id)
			continue
		}
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	switch {
	case len(sources) == 0:
		return nil, fmt.Errorf("volumes %s: %w on node %s", strings.Join(missing, ", "), volume.ErrNotFound, n.config.Name)
	case len(missing) > 0:
		return nil, fmt.Errorf("%w: volumes %s are not on node %s, and all volumes of a group have to be on one node: "+
			"nothing stops the writers of two nodes at the same moment", volume.ErrPrecondition, strings.Join(missing, ", "),
			n.config.Name)
	}
	return sources, nil
}

// beginMember returns the record of a snapshot of a group that is to be cut: that of an interrupted call where a copy
// byte by byte can be gone on with, else a new one.
func (n *Node) beginMember(ctx context.Context, group volume.Group, source *volume.Record,
	before []*volume.Record) (*volume.Record, error) {
	for _, rec := range before {
		if rec.Source.VolumeID != source.ID {
			continue
		}
		rec.Cut = false // not all of the group are, so this one is of another moment than the others will be
		if err := n.beginAnew(ctx, n.snapshots, rec); err != nil {
			return nil, err
		}
		if rec.Job != nil {
			return rec, nil
		}
	}
	rec := snapshotRecord(n.GroupMemberID(group.Name, source.ID), memberName(group.Name, source.ID), source)
	rec.Group = &group
	return rec, nil
}

func (n *Node) cutMembers(ctx context.Context, sources, records []*volume.Record) error {
	copies := make([]*copying, 0, len(records))
	for i, rec := range records {
		c, err := n.newCopying(ctx, n.snapshots, sources[i], rec)
		if err != nil {
			return err
		}
		copies = append(copies, c)
	}
	return n.cutTogether(ctx, copies)
}

// GroupSnapshot returns the snapshots of a group; given IDs of snapshots have to be theirs.
func (n *Node) GroupSnapshot(id string, snapshotIDs []string) ([]*volume.Record, error) {
	unknown := fmt.Errorf("group snapshot %q: %w on this node", id, volume.ErrNotFound)
	if !volume.ValidGroupID(id) {
		return nil, unknown
	}
	records, err := n.members(id)
	if err != nil {
		return nil, err
	}
	if !wholeGroups(records)[id] {
		return nil, unknown
	}
	return records, sameMembers(id, records, snapshotIDs)
}

func sameMembers(id string, records []*volume.Record, snapshotIDs []string) error {
	if len(snapshotIDs) == 0 {
		return nil
	}
	has := make([]string, 0, len(records))
	for _, rec := range records {
		has = append(has, rec.ID)
	}
	slices.Sort(has)
	if want := slices.Sorted(slices.Values(snapshotIDs)); !slices.Equal(has, want) {
		return fmt.Errorf("%w: group snapshot %s has the snapshots %s, the request names %s", volume.ErrInvalid, id,
			strings.Join(has, ", "), strings.Join(want, ", "))
	}
	return nil
}

// GroupMembers returns the IDs of all snapshots that there are of a group, whole or not.
func (n *Node) GroupMembers(id string) ([]string, error) {
	records, err := n.members(id)
	ids := make([]string, 0, len(records))
	for _, rec := range records {
		ids = append(ids, rec.ID)
	}
	return ids, err
}

// DeleteGroupSnapshot removes the snapshots of a group, or leaves them to the eraser. One that is not known is deleted
// already; one of another node is refused.
func (n *Node) DeleteGroupSnapshot(ctx context.Context, id string, snapshotIDs []string) error {
	if !volume.ValidGroupID(id) {
		return nil
	}
	if err := n.onThisNode("group snapshot", id); err != nil {
		return err
	}
	records, err := n.members(id)
	if err != nil {
		return err
	}
	if wholeGroups(records)[id] {
		if err := sameMembers(id, records, snapshotIDs); err != nil {
			return err
		}
	}
	for _, rec := range records { // from the first of these writes on the group is not there any more
		if mustErase(rec) || rec.Phase == volume.PhaseDeleting {
			continue
		}
		rec.Phase = volume.PhaseDeleting
		if err := n.snapshots.PutReleasing(rec); err != nil {
			return err
		}
	}
	for _, rec := range records {
		if err := n.deleteSnapshot(ctx, rec); err != nil {
			return err
		}
	}
	return n.deleteLeftMembers(ctx, records, snapshotIDs)
}

// deleteLeftMembers removes devices of snapshots whose state is lost; the caller has named them.
func (n *Node) deleteLeftMembers(ctx context.Context, known []*volume.Record, snapshotIDs []string) error {
	for _, id := range snapshotIDs {
		isKnown := slices.ContainsFunc(known, func(rec *volume.Record) bool { return rec.ID == id })
		if isKnown || !volume.ValidSnapshotID(id) || !volume.SnapshotOnNode(id, n.config.Name) {
			continue
		}
		if _, err := n.snapshots.Get(id); !errors.Is(err, volume.ErrNotFound) {
			continue // it is one of another group, or of none
		}
		if err := n.deleteLeftover(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
