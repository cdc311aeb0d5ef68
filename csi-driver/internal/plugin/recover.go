// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// recoverWait is how long an agent gets for what has just died. It recovers logs one after the other, each within a
// fraction of a second.
const recoverWait = 30 * time.Second

func newRecoverCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "recover CLAIM",
		Short: "Bring what ended processes left of a volume into its files, and show what recoveries did",
		Long: "An agent that serves a volume recovers what a process leaves that has ended: recover waits for it and shows " +
			"what was done. Where no agent serves a\n" +
			"volume that is mounted, recover runs `splitfs recover` in the node service's pod, which needs the right to exec " +
			"there (root on the node). A volume\n" +
			"that is not mounted is recovered when a pod uses it next.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			c, err := s.connect(s)
			if err != nil {
				return err
			}
			r := &recovery{cluster: c, name: client.ObjectKey{Namespace: c.namespace, Name: arguments[0]}, wait: recoverWait}
			p := newPrinter(s.streams.Out)
			return errors.Join(r.run(cmd.Context(), p), p.err)
		},
	}
}

// recovery is one run of the command.
type recovery struct {
	cluster *cluster
	name    client.ObjectKey
	wait    time.Duration
}

func (r *recovery) run(ctx context.Context, p *printer) error {
	found, err := r.cluster.claimVolume(ctx, r.name)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("claim %s has no volume of SplitFS", r.name)
	case found.id == "":
		return fmt.Errorf("claim %s has no volume yet; there is nothing to recover", r.name)
	case found.block:
		return fmt.Errorf("claim %s is a raw block volume, which has no logs; there is nothing to recover", r.name)
	}
	var v v1alpha1.SplitFSVolume
	if err := r.cluster.client.Get(ctx, client.ObjectKey{Name: found.id}, &v); err != nil {
		return fmt.Errorf("get SplitFSVolume %s: %w", found.id, err)
	}
	seen, err := r.look(ctx, v.Status.NodeName, found.id)
	if err != nil {
		return err
	}
	switch {
	case seen == nil:
		p.printf("The volume is not mounted on node %s: it is recovered when a pod uses it next.\n", v.Status.NodeName)
		if last := v.Status.LastRecovery; last != nil {
			p.printf("When it was mounted last, at %s: %d writes replayed, %d logs set aside.\n", last.Time.Format(time.RFC3339),
				last.Replayed, last.Quarantined)
		}
		return nil
	case seen.AgentReady:
		return r.await(ctx, p, v.Status.NodeName, seen)
	}
	return r.byHand(ctx, p, v.Status.NodeName, seen)
}

// look returns nil when the volume is not mounted.
func (r *recovery) look(ctx context.Context, node, id string) (*coverage.Volume, error) {
	answer, err := r.cluster.coverageOn(ctx, node)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(answer.Volumes, func(v coverage.Volume) bool { return v.ID == id })
	if i < 0 {
		return nil, nil //nolint:nilnil // its meaning is said above
	}
	return &answer.Volumes[i], nil
}

// await shows what the agent has done, when it has done it.
func (r *recovery) await(ctx context.Context, p *printer, node string, v *coverage.Volume) error {
	pending := v.Recovery.Pending
	for deadline := time.Now().Add(r.wait); v.Recovery.Pending > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent of the volume has not recovered %s after %s; look at its log: kubectl -n %s logs -l "+
				"app.kubernetes.io/component=agents",
				count(v.Recovery.Pending, "log"), r.wait, r.cluster.release)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		next, err := r.look(ctx, node, v.ID)
		if err != nil {
			return err
		}
		if next == nil {
			return fmt.Errorf("the volume was unmounted on node %s meanwhile", node)
		}
		v = next
	}
	p.printf("An agent serves the volume on node %s and recovers by itself.\n", node)
	if pending > 0 {
		p.printf("%s of ended processes waited for it, and none does now.\n", count(pending, "log"))
	} else {
		p.printf("No log of an ended process waits for it.\n")
	}
	p.printf("So far: %s with something to do, %d records replayed, %d set aside.\n",
		count(int(v.Recovery.Runs), "recovery run"), v.Recovery.Replayed, v.Recovery.Quarantined)
	return aside(p, v.Recovery.Quarantined)
}

// aside ends the command with a failure where something is not in the files.
func aside(p *printer, quarantined int64) error {
	if quarantined == 0 {
		return nil
	}
	p.printf(
		"What was set aside was damaged, or did not belong to the volume, and is not in the files: docs/recovery.md\n")
	return errFound
}

// byHand runs the program where the volume is mounted. It refuses by itself where an agent serves the volume after all.
func (r *recovery) byHand(ctx context.Context, p *printer, node string, v *coverage.Volume) error {
	pod, err := r.cluster.nodePod(ctx, node)
	if err != nil {
		return err
	}
	p.printf("No agent serves the volume on node %s; running splitfs recover there.\n", node)
	stdout, stderr, err := r.cluster.nodes.Run(ctx, pod, "splitfs", "recover", v.Root, "--json")
	for line := range strings.Lines(stderr) {
		p.printf("%s\n", printable(strings.TrimRight(line, "\n")))
	}
	if err != nil {
		return fmt.Errorf("recover volume %s: %w", v.ID, err)
	}
	var done volume.Recovery
	if err := json.Unmarshal([]byte(stdout), &done); err != nil {
		return fmt.Errorf("recover volume %s: the program's answer %q: %w", v.ID, stdout, err)
	}
	p.printf("%d records replayed, %d set aside.\n", done.Replayed, done.Quarantined)
	return aside(p, done.Quarantined)
}
