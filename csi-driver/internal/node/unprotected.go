// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// unprotectedWatch are the pods, by UID, that were told that they have not the protection which they ask for.
type unprotectedWatch map[string]bool

// forget drops pods that are gone.
func (w unprotectedWatch) forget(records []*volume.Record) {
	using := map[string]bool{}
	for _, rec := range records {
		for _, p := range rec.Published {
			using[p.Pod.UID] = true
		}
	}
	maps.DeleteFunc(w, func(uid string, _ bool) bool { return !using[uid] })
}

// tellUnprotected tells each pod once when a process of it is to be kept from stray stores and cannot be.
func (n *Node) tellUnprotected(ctx context.Context, w unprotectedWatch, rec *volume.Record, status *splitfs.Status) {
	if n.config.Owner == nil {
		return
	}
	pods := map[string]volume.Pod{}
	for _, p := range rec.Published {
		pods[p.Pod.UID] = p.Pod
	}
	for i := range status.Processes {
		p := &status.Processes[i]
		if !p.Alive || p.Protection != splitfs.ProtectionCannot {
			continue
		}
		uid, _ := n.config.Owner(p.PID)
		pod, ours := pods[uid]
		if uid == "" || !ours || w[uid] {
			continue
		}
		w[uid] = true
		n.config.Events.OnPod(ctx, pod, true, events.ReasonUnprotected, n.unprotectedMessage(rec, p))
	}
}

// protectionKeys is what the kernel says of a processor whose protection keys it uses.
var protectionKeys = regexp.MustCompile(`(?m)^flags\s*:.*\bospke\b`)

// unprotectedMessage names the process and the remedy.
func (n *Node) unprotectedMessage(rec *volume.Record, p *splitfs.Process) string {
	cause := fmt.Sprintf(
		"the processor or the kernel of node %s has no protection keys (\"ospke\" in /proc/cpuinfo). Run the pod on a node "+
			"that has", n.config.Name)
	if text, err := os.ReadFile(filepath.Join(n.config.Proc, "cpuinfo")); err == nil && protectionKeys.Match(text) {
		cause = "the program has taken all protection keys, or is not allowed any (pkey_alloc). Have it leave one"
	}
	return fmt.Sprintf("process %q (PID %d on the node) is to be kept from stray stores into volume %s (annotation %s) "+
		"and is not: %s, or set the annotation to %q; it is served as without it",
		p.Comm, p.PID, rec.ID, contract.AnnotationProtect, cause, contract.ProtectOff)
}
