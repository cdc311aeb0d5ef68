// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Severity of a problem.
type Severity string

// Severities, from bad to worse.
const (
	Degraded     Severity = "degraded"     // usable, with a guarantee kept by slower means
	Inaccessible Severity = "inaccessible" // not usable on this node
	DataLoss     Severity = "data-loss"    // something that was written cannot be given back
)

// Problem is one thing that is wrong with a volume.
type Problem struct {
	Severity Severity
	// Reason is for programs (CamelCase), Message for people.
	Reason, Message string
}

// Reasons of problems that are no events.
const (
	reasonNotMounted    = "NotMounted"
	reasonStageFailed   = "StageFailed"
	reasonBadBlocks     = "BadBlocks"
	reasonFileSystem    = "FileSystemError"
	reasonNoAgent       = "NoAgent"
	reasonAgentStarting = "AgentStarting"
)

// stageRetried is how long a failure to stage a volume is a problem. While a pod waits kubelet tries again, every two
// minutes at the latest; a failure that is older is one that nobody waits for any more, and nobody would ever take it
// back.
const stageRetried = 10 * time.Minute

// problems returns everything that is wrong with a volume.
func (n *Node) problems(rec *volume.Record) ([]Problem, error) {
	var problems []Problem
	add := func(severity Severity, reason, message string) {
		if message != "" {
			problems = append(problems, Problem{severity, reason, message})
		}
	}
	if r := rec.Recovery; r != nil && r.Quarantined > 0 {
		add(DataLoss, events.ReasonQuarantined, quarantineMessage(rec))
	}
	if q := rec.Quarantined.SinceStaged; q > 0 {
		add(DataLoss, events.ReasonQuarantined, n.agentQuarantineMessage(rec))
	}
	if rec.Durability.Required() {
		add(Degraded, events.ReasonLessDurable, n.lessDurableMessage(rec))
	}
	// Where the clock was set back since, the failure is of the future.
	if rec.StageFailure != "" && time.Since(rec.StageFailed).Abs() < stageRetried {
		add(Inaccessible, reasonStageFailed, "the volume could not be made ready for its pods: "+rec.StageFailure)
	}
	if err := n.eraser.failure(rec.ID); err != nil {
		add(Degraded, events.ReasonEraseFailed, eraseFailedMessage("the volume", n.config.Name, err))
	}
	if rec.Staged == nil {
		return problems, nil
	}
	if rec.Block {
		bad, err := n.badBlocksOfTargets(rec)
		add(DataLoss, reasonBadBlocks, bad)
		return problems, err
	}
	mounted, err := mounts.At(rec.Staged.Path)
	if err != nil {
		return problems, err
	}
	if mounted == nil {
		add(Inaccessible, reasonNotMounted, "the volume was staged at "+rec.Staged.Path+", and nothing is mounted there now")
		return problems, nil
	}
	bad, err := n.badBlocks(uint32(mounted.Major), uint32(mounted.Minor))
	add(DataLoss, reasonBadBlocks, bad)
	add(Inaccessible, reasonFileSystem, n.fileSystemFailed(rec, mounted))
	add(Degraded, events.ReasonStockExt4, n.stockExt4(rec, mounted.FsType))
	state, watched := n.agents.State(rec.ID)
	reason, message := agentProblem(state, watched)
	add(Degraded, reason, message)
	return problems, err
}

func agentProblem(state agent.State, watched bool) (reason, message string) {
	switch {
	case !watched:
		return reasonNoAgent, "the volume has no agent"
	case !state.Ready && state.LastError != nil:
		return events.ReasonAgentDied, fmt.Sprintf("the agent is being restarted (%d times so far): %v", state.Restarts,
			state.LastError)
	case !state.Ready:
		return reasonAgentStarting, "the agent is starting"
	}
	return "", ""
}

// badBlocks says how much of a volume's memory is known to be unreadable, "" when none is.
func (n *Node) badBlocks(major, minor uint32) (string, error) {
	bad, err := device.BadBytes(n.config.Sysfs, major, minor)
	if err != nil || bad == 0 {
		return "", err
	}
	return fmt.Sprintf("%d bytes of the memory below the volume cannot be read any more (bad blocks); restore the files "+
		"that fail with an I/O error from a backup, and have the memory module looked at", bad), nil
}

func (n *Node) badBlocksOfTargets(rec *volume.Record) (string, error) {
	for target := range rec.Published {
		if mounted, err := mounts.At(target); err != nil {
			return "", err
		} else if mounted != nil {
			major, minor, err := mounts.DeviceNumbers(target)
			if err != nil {
				return "", err
			}
			return n.badBlocks(major, minor)
		}
	}
	return "", nil
}

// fileSystemFailed says why a mounted file system takes no writes any more: XFS shuts down after an error in its
// journal, ext4 becomes read-only.
func (n *Node) fileSystemFailed(rec *volume.Record, mounted *mountutils.MountInfo) string {
	if _, err := os.Stat(n.data(rec)); err != nil {
		return fmt.Sprintf(
			"the file system does not answer: %v; when its device is well, delete the volume's pods so that it is mounted anew",
			errors.Unwrap(err))
	}
	if slices.ContainsFunc(mounted.SuperOptions, func(o string) bool {
		return o == "ro" || o == "emergency_ro" || o == "shutdown"
	}) {
		return "the file system became read-only after an error; look at the node's kernel log, then delete the volume's " +
			"pods so that it is checked and mounted anew"
	}
	return ""
}
