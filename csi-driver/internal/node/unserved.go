// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// unservedInterval is how soon a pod is told that a program of it was refused.
const unservedInterval = 2 * time.Second

// unservedFile is written by a volume's agent when it has refused somebody.
const unservedFile = ".splitfs/unserved"

// unservedWatch remembers what was looked at and told.
type unservedWatch struct {
	looked map[string]time.Time
	told   map[unservedEvent]bool
}

// unservedEvent is what a pod is told once.
type unservedEvent struct{ volume, pod, did, program string }

// WatchUnserved tells pods of their programs without the library that were kept from writing, or whose files became
// synchronous, until ctx is done.
func (n *Node) WatchUnserved(ctx context.Context) {
	w := &unservedWatch{looked: map[string]time.Time{}, told: map[unservedEvent]bool{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(unservedInterval):
		}
		n.lookForUnserved(ctx, w)
	}
}

func (n *Node) lookForUnserved(ctx context.Context, w *unservedWatch) {
	records, _ := n.store.List() // Watch says which cannot be read
	pods := map[string]bool{}
	for _, rec := range records {
		enforced := podsEnforced(rec)
		for uid := range enforced {
			pods[uid] = true
		}
		if rec.Staged == nil || len(enforced) == 0 {
			continue
		}
		if err := n.tellUnserved(ctx, w, rec, enforced); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot tell pods of programs without the library", "volume-id", rec.ID)
		}
	}
	maps.DeleteFunc(w.told, func(e unservedEvent, _ bool) bool { return !pods[e.pod] })
}

// podsEnforced are the pods of a volume, by UID, whose programs without the library are not simply allowed.
func podsEnforced(rec *volume.Record) map[string]volume.Pod {
	pods := map[string]volume.Pod{}
	for _, p := range rec.Published {
		if p.Unserved != "" && p.Unserved != contract.Allow {
			pods[p.Pod.UID] = p.Pod
		}
	}
	return pods
}

func (n *Node) tellUnserved(ctx context.Context, w *unservedWatch, rec *volume.Record,
	pods map[string]volume.Pod) error {
	info, err := os.Stat(filepath.Join(rec.Staged.Path, unservedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for programs without the library: %w", err)
	}
	if w.looked[rec.ID].Equal(info.ModTime()) {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := n.config.CLI.Status(call, rec.Staged.Path)
	if err != nil {
		return err
	}
	w.looked[rec.ID] = info.ModTime()
	if status.Unserved.Enforcement == splitfs.EnforcementCannot {
		for _, pod := range pods {
			n.tellOnce(ctx, w, unservedEvent{volume: rec.ID, pod: pod.UID}, pod, events.ReasonUnservedNotRefused,
				fmt.Sprintf("programs of the pod that run without libsplit.so are to be kept from writing to volume %s, and its "+
					"agent on node %s cannot: its log says why", rec.ID, n.config.Name))
		}
	}
	for _, p := range status.Unserved.Processes {
		pod, ours := pods[p.Pod]
		if !ours {
			continue
		}
		reason, message := unservedMessage(rec, p)
		n.tellOnce(ctx, w, unservedEvent{rec.ID, pod.UID, p.Did, p.Program}, pod, reason, message)
	}
	return nil
}

func (n *Node) tellOnce(ctx context.Context, w *unservedWatch, e unservedEvent, pod volume.Pod,
	reason, message string) {
	if w.told[e] {
		return
	}
	w.told[e] = true
	n.config.Events.OnPod(ctx, pod, true, reason, message)
}

// unservedMessage names the program and the remedy.
func unservedMessage(rec *volume.Record, p splitfs.UnservedProcess) (reason, message string) {
	who := fmt.Sprintf("program %s (PID %d on the node)", p.Program, p.PID)
	remedy := fmt.Sprintf(
		"Start it so that its dynamic linker loads the library (`kubectl splitfs why` says what keeps it out: static "+
			"linking, Go's own system calls, a libc without /etc/ld.so.preload), "+
			"or set the pod's annotation %s to %s or %s", contract.AnnotationUnserved, contract.Durable, contract.Allow)
	if p.Did == string(contract.Durable) {
		return events.ReasonUnservedDurable, fmt.Sprintf(
			"%s runs without libsplit.so and has opened %s of volume %s for writing: the file is synchronous from now on "+
				"(chattr +S), which makes each of its writes durable, and none atomic",
			who, p.Path, rec.ID)
	}
	return events.ReasonUnservedRefused, fmt.Sprintf(
		"%s runs without libsplit.so and was refused to open %s of volume %s for writing (EPERM), because its writes would "+
			"not have what the volume's mode promises. %s",
		who, p.Path, rec.ID, remedy)
}
