// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Watch looks after what no call of kubelet's would notice, until ctx is done. It takes the volumes' locks itself and
// leaves them to whoever calls; a volume that is busy is looked at the next time.
func (n *Node) Watch(ctx context.Context, locks *volume.Locks, interval time.Duration) {
	libraryFailed := false
	var pools poolWatch
	unprotected := unprotectedWatch{}
	n.reportOrphans(ctx)
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		libraryFailed = n.watchLibrary(ctx, libraryFailed)
		pools.watch(ctx, n)
		if time.Since(looked) > orphanInterval {
			n.reportOrphans(ctx)
			n.removeUnusedLibraries(ctx)
			looked = time.Now()
		}
		records, err := n.store.List()
		if err == nil {
			n.removeUnusedPrograms(ctx, records)
			n.removePods(ctx, records)
			n.configurePods(ctx, records)
			unprotected.forget(records)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot look after all volumes")
		}
		for _, rec := range records {
			if state, ok := n.agents.State(rec.ID); rec.Staged == nil || !ok || !state.Ready {
				continue
			}
			err := n.watchVolume(ctx, locks, rec.ID, unprotected)
			if err != nil && ctx.Err() == nil && !errors.Is(err, volume.ErrBusy) {
				klog.FromContext(ctx).Error(err, "Cannot look after a volume", "volume-id", rec.ID)
			}
		}
	}
}

// watchLibrary puts the library back when it has gone or changed: a program that is started without it runs with a
// weaker guarantee than its claim promises. Running programs keep the one they have mapped. A failure is told once,
// until it is over.
func (n *Node) watchLibrary(ctx context.Context, failedBefore bool) (failed bool) {
	why, err := n.library.restore()
	switch {
	case err != nil && !failedBefore:
		klog.FromContext(ctx).Error(err, "The library cannot be put back")
		n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonLibraryMissing,
			fmt.Sprintf(
				"libsplit.so is not there for pods of node %s and cannot be put back: %v; programs that start now run without it",
				n.config.Name, err))
	case err == nil && why != "":
		n.reportRestored(ctx, why)
	}
	return err != nil
}

// removePods removes what pods saw that are gone.
func (n *Node) removePods(ctx context.Context, records []*volume.Record) {
	using := map[string]bool{}
	for _, rec := range records {
		for _, p := range rec.Published {
			using[p.Pod.UID] = true
		}
	}
	if err := n.library.removePods(using, podGrace); err != nil {
		klog.FromContext(ctx).Error(err, "Directories of pods stay")
	}
}

// removeUnusedPrograms ends what an upgrade began, when every agent runs the program of this version.
func (n *Node) removeUnusedPrograms(ctx context.Context, records []*volume.Record) {
	var running []string
	for _, rec := range records {
		if state, watched := n.agents.State(rec.ID); watched {
			running = append(running, state.Program)
		}
	}
	if err := n.program.removeUnused(running); err != nil {
		klog.FromContext(ctx).Error(err, "Old versions of the splitfs program stay")
	}
}

// removeUnusedLibraries ends what an upgrade began, when the last process with the version before has gone.
func (n *Node) removeUnusedLibraries(ctx context.Context) {
	removed, err := n.library.removeUnused("/proc", libraryGrace)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Old versions of the library stay")
	}
	for _, version := range removed {
		klog.FromContext(ctx).Info("Removed a version of the library that no process uses", "sha256", version)
	}
}

func (n *Node) reportRestored(ctx context.Context, why string) {
	klog.FromContext(ctx).Info("Put the library back", "why", why)
	n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonLibraryRestored,
		fmt.Sprintf("libsplit.so of node %s %s and was put back; programs that started meanwhile may run without it: "+
			"restart their pods", n.config.Name, why))
}

// restore compares what pods see with what the image holds, and puts it back. It says what was wrong, "" when nothing
// was.
func (l library) restore() (why string, err error) {
	want, err := os.ReadFile(l.source)
	if err != nil {
		return "", fmt.Errorf("the library of this image: %w", err)
	}
	have, err := os.ReadFile(l.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "was missing"
	case err != nil:
		return "", fmt.Errorf("the library: %w", err)
	case !bytes.Equal(have, want):
		why = "was not the one of this version"
	default:
		return "", l.installForPods()
	}
	if err := l.prepareDirs(); err != nil {
		return why, err
	}
	return why, l.install()
}

// watchVolume asks a volume how it is, and tells its users what they have to know.
func (n *Node) watchVolume(ctx context.Context, locks *volume.Locks, id string, unprotected unprotectedWatch) error {
	look, release, err := locks.TryLockYielding(ctx, id, "look after it")
	if err != nil {
		return err
	}
	defer release()
	rec, err := n.get(id)
	if err != nil {
		return err
	}
	if rec.Staged == nil {
		return nil
	}
	statusCtx, cancel := context.WithTimeout(look, statusTimeout)
	defer cancel()
	status, err := n.config.CLI.Status(statusCtx, rec.Staged.Path)
	if look.Err() != nil {
		return fmt.Errorf("volume %s: %w: given up for a call or the end of the service", id, volume.ErrBusy)
	}
	if err != nil {
		return err
	}
	n.tellUnprotected(ctx, unprotected, rec, status)
	return n.tellQuarantined(ctx, rec, status)
}

// tellQuarantined tells the users of a volume when its agent has set aside something that a dead program had left.
func (n *Node) tellQuarantined(ctx context.Context, rec *volume.Record, status *splitfs.Status) error {
	fresh := status.Recovery.Quarantined - rec.Quarantined.Counted
	if fresh == 0 {
		return nil
	}
	rec.Quarantined.Counted = status.Recovery.Quarantined
	if fresh > 0 { // else the volume counts anew: it was restored from a copy
		rec.Quarantined.SinceStaged += fresh
	}
	if err := n.store.Put(rec); err != nil {
		return err
	}
	if fresh > 0 {
		klog.FromContext(ctx).Info("An agent set something aside", "volume-id", rec.ID, "quarantined", fresh)
		n.notifyUsers(ctx, rec, true, events.ReasonQuarantined, n.agentQuarantineMessage(rec))
	}
	return nil
}

func (n *Node) agentQuarantineMessage(rec *volume.Record) string {
	return fmt.Sprintf("the agent of volume %s set aside %d damaged or foreign log entries of programs that died since "+
		"the volume was staged on node %s; what they held is not in the files. Look at them with `splitfs status`",
		rec.ID, rec.Quarantined.SinceStaged, n.config.Name)
}
