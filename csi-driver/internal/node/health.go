// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Stats of a published volume.
type Stats struct {
	filesystem.Usage
	// Abnormal says that somebody should look; Message says at what, and is never empty.
	Abnormal bool
	Message  string
}

// Stats measures a volume at a path where it is mounted.
func (n *Node) Stats(id, path string) (Stats, error) {
	rec, err := n.store.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		if isLibrary, err := n.showsLibrary(path); err != nil {
			return Stats{}, err
		} else if !isLibrary {
			return Stats{}, fmt.Errorf("volume %q: %w on this node", id, volume.ErrNotFound)
		}
		usage, err := filesystem.Measure(path)
		return Stats{Usage: usage, Message: "the library and the sockets of the agents of this node"}, err
	}
	if err != nil {
		return Stats{}, err
	}
	mounted, err := mounts.At(path)
	if err != nil {
		return Stats{}, err
	}
	if mounted == nil {
		return Stats{}, fmt.Errorf("volume %s: %w at %s: nothing is mounted there", id, volume.ErrNotFound, path)
	}
	usage, err := filesystem.Measure(path)
	if err != nil {
		return Stats{}, err
	}
	abnormal, message := n.condition(rec)
	return Stats{Usage: usage, Abnormal: abnormal, Message: message}, nil
}

// showsLibrary says whether path is the inject directory, shown to a pod.
func (n *Node) showsLibrary(path string) (bool, error) {
	mounted, err := mounts.At(path)
	if err != nil || mounted == nil {
		return false, err
	}
	have, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	want, err := os.Stat(n.library.dir)
	if err != nil {
		return false, err
	}
	return os.SameFile(have, want), nil
}

// condition is the health of a volume in one sentence.
func (n *Node) condition(rec *volume.Record) (abnormal bool, message string) {
	state, watched := n.agents.State(rec.ID)
	switch {
	case rec.Staged == nil:
		return false, "not staged"
	case !watched:
		return true, "the volume has no agent"
	case !state.Ready && state.LastError != nil:
		return true, fmt.Sprintf("the agent is being restarted (%d times so far): %v", state.Restarts, state.LastError)
	case !state.Ready:
		return true, "the agent is starting"
	case rec.Recovery != nil && rec.Recovery.Quarantined > 0:
		return true, quarantineMessage(rec)
	}
	message = "served by its agent"
	if manager, err := n.config.Managers.Get(rec.Device); err == nil && manager.Emulated() {
		message += "; emulated, not persistent memory"
	}
	return false, message
}

// Report is what monitoring wants to know of one volume.
type Report struct {
	Record    *volume.Record
	Emulated  bool
	Agent     agent.State
	Abnormal  bool
	Condition string
	// Status is nil when the volume is not mounted or did not answer; StatusErr says why in the second case.
	Status    *splitfs.Status
	StatusErr error
}

// statusTimeout keeps one sick volume from holding up the metrics of all.
const statusTimeout = 3 * time.Second

// Reports returns a report of every volume, and what is wrong with those that have none.
func (n *Node) Reports(ctx context.Context) ([]Report, error) {
	records, err := n.store.List()
	reports := make([]Report, 0, len(records))
	for _, rec := range records {
		r := Report{Record: rec}
		r.Agent, _ = n.agents.State(rec.ID)
		r.Abnormal, r.Condition = n.condition(rec)
		if manager, err := n.config.Managers.Get(rec.Device); err == nil {
			r.Emulated = manager.Emulated()
		}
		if rec.Staged != nil && r.Agent.Ready {
			statusCtx, cancel := context.WithTimeout(ctx, statusTimeout)
			r.Status, r.StatusErr = n.config.CLI.Status(statusCtx, rec.Staged.Path)
			cancel()
		}
		reports = append(reports, r)
	}
	return reports, err
}

// LibraryReady says whether pods find the library on this node.
func (n *Node) LibraryReady() error { return unix.Access(n.library.path(), unix.R_OK) }

func ignoreNotFound(err error) error {
	if errors.Is(err, volume.ErrNotFound) {
		return nil
	}
	return err
}
