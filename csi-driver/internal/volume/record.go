// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"time"

	"splitfs.io/splitfs/internal/contract"
)

// Phase is how far a volume's life has come. It is on disk before the device is touched, so that after a crash it says
// what may exist: in PhaseCreating or PhaseDeleting the device may be there, half there or absent.
type Phase string

// Phases of a volume.
const (
	PhaseCreating Phase = "creating"
	PhaseReady    Phase = "ready"
	// PhaseErasing: it was deleted, and what its device holds is being erased before its space is given back.
	PhaseErasing  Phase = "erasing"
	PhaseDeleting Phase = "deleting"
)

// recordVersion is the format of a state file. It changes only when an older driver would do harm by not knowing a
// field; other fields are added without. A driver refuses a version above its own, and keeps fields it does not know.
const (
	recordVersion = cutVersion
	firstVersion  = 1
	// eraseVersion is that of a volume which is to be erased: an older driver would delete it and leave its bytes. All
	// others keep the first version, so that an older driver serves them.
	eraseVersion = 2
	// cutVersion is that of a copy that is cut and not ready: an older driver would make it anew, of a later moment.
	cutVersion = 3
)

// Record is everything the node knows about a volume, one file per volume.
type Record struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Phase   Phase  `json:"phase"`

	Mode   contract.Mode `json:"mode"`
	Device string        `json:"device"`
	// Class is the device class that it was made in; empty: there were none.
	Class string `json:"class,omitempty"`
	// Thin: its device is in a thin pool.
	Thin bool `json:"thin,omitempty"`
	// FSType is empty for a raw block volume.
	FSType string `json:"fsType"`
	// Block: a raw block volume. It has no file system, so no pool, no logs and no agent, and the library does not serve
	// it.
	Block bool `json:"block,omitempty"`
	PVC   PVC  `json:"pvc,omitzero"`

	// Size is what the user was promised; DeviceSize adds the pool, the logs and the file system's own needs.
	Size       int64 `json:"size"`
	DeviceSize int64 `json:"deviceSize"`
	// Overhead is the pool and the logs, as chosen when the volume was made.
	Overhead int64 `json:"overhead"`
	// Pool is the pool alone; 0 for raw block volumes, and for those of drivers that had one size for all.
	Pool int64 `json:"pool,omitempty"`

	// Unserved is what becomes of programs without the library that open a file for writing, as the class says; empty: by
	// mode.
	Unserved contract.Unserved `json:"unserved,omitempty"`

	// Erase is what becomes of its bytes when it is deleted; empty: nothing.
	Erase Erase `json:"erase,omitempty"`
	// Durability is what the volume's memory had to be when it was made; empty: anything, as for drivers that did not know
	// it.
	Durability Durability `json:"durability,omitempty"`
	// Memory is what its memory was found to be when it was staged the last time; empty: not known.
	Memory Memory `json:"memory,omitempty"`
	// HalfMade: it is to be a copy whose making failed, so its device may hold a part of what the original holds, or not
	// be there.
	HalfMade bool `json:"halfMade,omitempty"`

	// Source is what the volume is a copy of; nil: it began empty. A snapshot has it too.
	Source *Source `json:"source,omitempty"`
	// Group is the group that a snapshot was taken in; nil: it is on its own.
	Group *Group `json:"group,omitempty"`
	// Taken is when a snapshot was taken.
	Taken time.Time `json:"taken,omitzero"`
	// Job is long work that the volume or snapshot waits for; nil: there is none.
	Job *Job `json:"job,omitempty"`
	// Cut: a copy that is being made has all that it needs of its original: what it holds was chosen, and does not change
	// any more.
	Cut bool `json:"cut,omitempty"`
	// Frozen: the file system may be frozen, because a copy of it is being made.
	Frozen bool `json:"frozen,omitempty"`

	// Formatted is set once, after mkfs succeeded. A volume that has it is never formatted again, whatever its device
	// looks like.
	Formatted bool `json:"formatted,omitempty"`
	// Cleared: zeros were written over the device of a raw block volume on persistent memory before anybody saw it.
	Cleared bool `json:"cleared,omitempty"`
	// Measured is the promised size that was checked against the formatted file system.
	Measured int64 `json:"measured,omitempty"`

	Staged    *Staging           `json:"staged,omitempty"`
	Published map[string]Publish `json:"published,omitempty"`
	Recovery  *Recovery          `json:"recovery,omitempty"`
	// StageFailure says why the last NodeStage failed, empty after one that did not.
	StageFailure string `json:"stageFailure,omitempty"`
	// StageFailed is when that was.
	StageFailed time.Time `json:"stageFailed,omitzero"`
	// Quarantined is what agents set aside while the volume was in use.
	Quarantined Quarantined `json:"quarantined,omitzero"`

	// read is the state file as it was read, for the fields in it that are not known here.
	read any
}

// SetErase sets what becomes of the volume's bytes; none is written as no field, so that older drivers know the volume.
func (r *Record) SetErase(how Erase) {
	if r.Erase = how; !how.Wanted() {
		r.Erase = ""
	}
}

// SetDurability sets what the volume's memory has to be; any is written as no field.
func (r *Record) SetDurability(d Durability) {
	if r.Durability = d; !d.Required() {
		r.Durability = ""
	}
}

// JobKind says what a job does.
type JobKind string

// Kinds of jobs.
const (
	// JobCopy copies the bytes of the original.
	JobCopy JobKind = "copy"
	// JobUnshare gives a copy blocks of its own in place of those that it shares with its original.
	JobUnshare JobKind = "unshare"
	// JobClear writes zeros over a new raw block volume.
	JobClear JobKind = "clear"
)

// Job is how far work has come that takes as long as a device is large. The next start of the node service goes on from
// there.
type Job struct {
	Kind  JobKind `json:"kind"`
	Done  int64   `json:"done"`
	Total int64   `json:"total"`
}

// Percent of the work that is done.
func (j Job) Percent() int64 {
	if j.Total <= 0 {
		return 0
	}
	return j.Done * 100 / j.Total
}

// Source names what a copy was made of.
type Source struct {
	VolumeID   string `json:"volumeID,omitempty"`
	SnapshotID string `json:"snapshotID,omitempty"`
}

// Group is what the snapshots of a group have in common. A group has no record of its own: it is there when all of its
// snapshots are.
type Group struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Sources are the volumes, sorted.
	Sources []string `json:"sources"`
}

// Quarantined counts what recovery by agents set aside.
type Quarantined struct {
	// Counted is how much of the volume's own count, which never goes back, users were told of.
	Counted int64 `json:"counted,omitempty"`
	// SinceStaged is how much of it came from agents since the volume was staged.
	SinceStaged int64 `json:"sinceStaged,omitempty"`
}

// Staging says where the volume's file system is, or was before a reboot, mounted.
type Staging struct {
	Path string `json:"path"`
}

// Publish says for whom the volume is mounted at a target path.
type Publish struct {
	Pod      Pod  `json:"pod,omitzero"`
	ReadOnly bool `json:"readOnly,omitempty"`
	// Unserved is what becomes of the pod's programs without the library; empty: they are allowed.
	Unserved contract.Unserved `json:"unserved,omitempty"`
}

// Recovery is the outcome of the last recovery that NodeStage ran.
type Recovery struct {
	Time        time.Time `json:"time"`
	Logs        int64     `json:"logs"`
	Records     int64     `json:"records"`
	Replayed    int64     `json:"replayed"`
	Bytes       int64     `json:"bytes"`
	Ignored     int64     `json:"ignored"`
	Files       int64     `json:"files"`
	Quarantined int64     `json:"quarantined"`
}
