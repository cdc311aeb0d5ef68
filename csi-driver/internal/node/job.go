// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	// jobSave is how often the record of a volume is told how far its job has come: so much is done twice after a crash.
	jobSave = time.Second
	// jobLong is how long a job takes whose beginning and end are events.
	jobLong = 5 * time.Second
)

// job is long work on a volume or snapshot, which is in its record. Whoever runs one has the volume's lock.
type job struct {
	node           *Node
	store          *volume.Store
	rec            *volume.Record
	started, saved time.Time
	long           bool
}

// beginJob writes down that a job is to be done, unless an earlier process began it: then its record says from where it
// goes on.
func (n *Node) beginJob(store *volume.Store, rec *volume.Record, kind volume.JobKind, total int64) (*job, error) {
	j := &job{node: n, store: store, rec: rec, started: time.Now()}
	if rec.Job != nil && rec.Job.Kind == kind {
		return j, nil
	}
	rec.Job = &volume.Job{Kind: kind, Total: total}
	return j, store.Put(rec)
}

// at writes down how far the job has come, when it is time to.
func (j *job) at(ctx context.Context, done, total int64) error {
	now := time.Now()
	if now.Sub(j.saved) < jobSave {
		return nil
	}
	j.saved = now
	j.rec.Job.Done, j.rec.Job.Total = done, total
	if !j.long && now.Sub(j.started) >= jobLong {
		j.long = true
		j.node.config.Events.OnPVC(ctx, j.rec.PVC, false, events.ReasonLongWork,
			fmt.Sprintf("%s on node %s: %d of %d MiB are done",
				jobText(j.rec), j.node.config.Name, done/volume.MiB, total/volume.MiB))
	}
	err := j.store.Put(j.rec)
	if errors.Is(err, volume.ErrExhausted) {
		return nil // the work goes on; after a crash more of it is done twice
	}
	return err
}

// end forgets the job. The caller's next write of the record makes that durable.
func (j *job) end(ctx context.Context) {
	if j.long {
		j.node.config.Events.OnPVC(ctx, j.rec.PVC, false, events.ReasonLongWork, fmt.Sprintf("%s on node %s: done in %d s",
			jobText(j.rec), j.node.config.Name, int64(time.Since(j.started).Seconds())))
	}
	j.rec.Job = nil
}

func jobText(rec *volume.Record) string {
	what := "volume " + rec.ID
	if volume.ValidSnapshotID(rec.ID) {
		what = "snapshot " + rec.ID
	}
	switch rec.Job.Kind {
	case volume.JobCopy:
		return what + " is being copied from its original"
	case volume.JobUnshare:
		return what + " gets storage of its own"
	case volume.JobClear:
		return what + " is being overwritten with zeros before its first use"
	}
	return what + ": " + string(rec.Job.Kind)
}

// Jobs returns the volumes and snapshots that wait for long work.
func (n *Node) Jobs(reports []Report) ([]*volume.Record, error) {
	list, err := n.snapshots.List()
	for _, r := range reports {
		list = append(list, r.Record)
	}
	var waiting []*volume.Record
	for _, rec := range list {
		if rec.Job != nil {
			waiting = append(waiting, rec)
		}
	}
	return waiting, err
}

// Unfinished returns the copies that were cut before the node service ended, and that somebody may have been told of.
func (n *Node) Unfinished() (volumes, snapshots []*volume.Record, err error) {
	cut := func(store *volume.Store) []*volume.Record {
		all, errList := store.List()
		if errList != nil && err == nil {
			err = errList
		}
		whole := wholeGroups(all) // of others nobody was told
		var list []*volume.Record
		for _, rec := range all {
			if rec.Cut && rec.Phase == volume.PhaseCreating && (rec.Group == nil || whole[rec.Group.ID]) {
				list = append(list, rec)
			}
		}
		return list
	}
	return cut(n.store), cut(n.snapshots), err
}

// Working returns the record of a volume or snapshot on which somebody works; nil: it is not known.
func (n *Node) Working(id string) *volume.Record {
	rec, err := n.storeOf(id).Get(id)
	if err != nil {
		return nil
	}
	return rec
}
