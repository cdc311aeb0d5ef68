// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

func newStatusCommand(s *settings) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes and volumes, and what is wrong with them",
		Long: "Shows the nodes of SplitFS and its volumes, and below them what is wrong. With -n only volumes whose claims " +
			"are in that namespace.\n" +
			"It reads SplitFSNodes and SplitFSVolumes, which nodes write when something changes and every few minutes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.connect(s)
			if err != nil {
				return err
			}
			state, err := readState(cmd.Context(), c)
			if err != nil {
				return err
			}
			if o.json() {
				return printJSON(s.streams.Out, state)
			}
			return state.print(s.streams.Out, s.now())
		},
	}
	o.add(cmd)
	return cmd
}

// state is what nodes have written.
type state struct {
	Nodes   []v1alpha1.SplitFSNode   `json:"nodes"`
	Volumes []v1alpha1.SplitFSVolume `json:"volumes"`
}

func readState(ctx context.Context, c *cluster) (*state, error) {
	var nodes v1alpha1.SplitFSNodeList
	if err := c.client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list SplitFSNodes: %w", err)
	}
	var volumes v1alpha1.SplitFSVolumeList
	if err := c.client.List(ctx, &volumes); err != nil {
		return nil, fmt.Errorf("list SplitFSVolumes: %w", err)
	}
	if c.asked {
		volumes.Items = slices.DeleteFunc(volumes.Items, func(v v1alpha1.SplitFSVolume) bool {
			return !strings.HasPrefix(v.Status.Claim, c.namespace+"/")
		})
	}
	slices.SortFunc(nodes.Items, func(a, b v1alpha1.SplitFSNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(volumes.Items, func(a, b v1alpha1.SplitFSVolume) int {
		return strings.Compare(a.Status.Claim+"\x00"+a.Name, b.Status.Claim+"\x00"+b.Name)
	})
	return &state{Nodes: nodes.Items, Volumes: volumes.Items}, nil
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// print shows tables, and behind them what is wrong.
func (s *state) print(out io.Writer, now time.Time) error {
	p := newPrinter(out)
	if len(s.Nodes) == 0 {
		p.printf("No node reports. Is SplitFS installed, and does its node service run? `kubectl splitfs doctor` looks.\n")
	} else {
		p.grid(s.nodeGrid(now))
	}
	p.printf("\n")
	if len(s.Volumes) == 0 {
		p.printf("No volumes.\n")
	} else {
		p.grid(s.volumeGrid())
	}
	problems := s.problems()
	if len(problems) > 0 {
		p.printf("\n%s:\n", count(len(problems), "problem"))
	}
	for _, problem := range problems {
		p.printf("  %s\n", printable(problem))
	}
	return p.err
}

func (s *state) nodeGrid(now time.Time) *grid {
	g := &grid{gap: 3, columns: []gridColumn{
		{"NODE", 0}, {"READY", 0}, {"MEMORY", 6}, {"RELINK", 2}, {"MODULE", 3}, {"LIBRARY", 1}, {"CAPACITY", 4},
		{"AVAILABLE", 7}, {"VOLUMES", 8}, {"HEARD OF", 5},
	}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		g.add(n.Name, orDash(conditionStatus(n.Status.Conditions, v1alpha1.NodeReady)), memory(n),
			orDash(n.Status.Relink), orDash(n.Status.Module.State), orDash(shortDigest(n.Status.Library.SHA256)),
			quantity(n.Status.Capacity), quantity(n.Status.Available),
			strconv.Itoa(int(n.Status.VolumeCount)), ago(now, n.Status.HeartbeatTime.Time))
	}
	return g
}

func (s *state) volumeGrid() *grid {
	g := &grid{gap: 3, columns: []gridColumn{
		{headClaim, 0}, {headMode, 7}, {"SIZE", 3}, {"DEVICE", 2}, {"MEMORY", 6}, {"RELINK", 1}, {"NODE", 5}, {"PHASE", 8},
		{"HEALTH", 0}, {"PODS", 4},
	}}
	for i := range s.Volumes {
		v := &s.Volumes[i].Status
		g.add(cmp.Or(v.Claim, s.Volumes[i].Name), orDash(v.Mode), quantity(v.Size),
			orDash(v.Device), volumeMemory(v), orDash(v.Provider),
			orDash(v.NodeName), orDash(string(v.Phase)), orDash(string(v.Health)), podNames(v.Pods))
	}
	return g
}

// podNames are pods without their namespace, which is that of their claim.
func podNames(pods []string) string {
	const most = 3
	var names []string
	for i, pod := range pods {
		if i == most {
			names = append(names, fmt.Sprintf("+%d", len(pods)-most))
			break
		}
		_, name, _ := strings.Cut(pod, "/")
		names = append(names, name)
	}
	return orDash(strings.Join(names, ","))
}

// memoryKinds is what a node's volumes are made of.
type memoryKinds struct{ persistent, emulated bool }

func kinds(n *v1alpha1.SplitFSNode) (has memoryKinds) {
	for _, d := range n.Status.Devices {
		has.emulated = has.emulated || d.Emulated
		has.persistent = has.persistent || !d.Emulated
	}
	return has
}

// memory says it in a table: the word for what promises most, or, of a node service that does not know it, persistent.
func memory(n *v1alpha1.SplitFSNode) string {
	var words []string
	has := kinds(n)
	if has.persistent {
		words = append(words, cmp.Or(strings.TrimPrefix(n.Status.Memory, "emulated"), "persistent"))
	}
	if has.emulated {
		words = append(words, "emulated")
	}
	return orDash(strings.Join(words, ","))
}

func volumeMemory(v *v1alpha1.SplitFSVolumeStatus) string {
	switch c := meta.FindStatusCondition(v.Conditions, v1alpha1.VolumePersistentMemory); {
	case c == nil:
		return "-"
	case v.Memory != "":
		return v.Memory
	case c.Status == metav1.ConditionTrue:
		return "persistent"
	}
	return "emulated"
}

func conditionStatus(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return string(c.Status)
	}
	return ""
}

func shortDigest(digest string) string { return digest[:min(len(digest), 8)] }

// nodeConditions are those that every node should have.
var nodeConditions = []string{v1alpha1.NodeReady, v1alpha1.NodeDevicesReady, v1alpha1.NodeLibraryInstalled}

// volumeProblem is a condition that is not as it should be.
func volumeProblem(v *v1alpha1.SplitFSVolume, c *metav1.Condition) string {
	return fmt.Sprintf("claim %s (%s): %s: %s", orDash(v.Status.Claim), v.Name, c.Reason, c.Message)
}

// problems are the conditions that are not as they should be. A kernel module that nobody asked for, an emulated device
// and a volume that nobody uses are none.
func (s *state) problems() []string {
	var list []string
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, kind := range nodeConditions {
			if c := meta.FindStatusCondition(n.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
				list = append(list, fmt.Sprintf("node %s: %s is %s (%s): %s", n.Name, kind, c.Status, c.Reason, c.Message))
			}
		}
		if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeModuleReady); c != nil &&
			c.Status != metav1.ConditionTrue && c.Reason != "NotConfigured" {
			list = append(list, fmt.Sprintf("node %s: kernel module %s: %s", n.Name, c.Reason, c.Message))
		}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VolumeHealthy); c != nil &&
			c.Status != metav1.ConditionTrue {
			list = append(list, volumeProblem(v, c))
			continue // it is why the volume is not served, where it is not
		}
		if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VolumeServed); c != nil &&
			(c.Reason == "AgentNotReady" || c.Reason == "NoAnswer") {
			list = append(list, volumeProblem(v, c))
		}
	}
	return list
}
