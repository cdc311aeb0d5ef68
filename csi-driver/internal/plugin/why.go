// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/promise"
)

func newWhyCommand(s *settings) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "why POD",
		Short: "Show which containers and processes of a pod are served, in which mode, and why others are not",
		Long: "Shows for each container of a pod where it has SplitFS volumes, in which mode the library serves them, and " +
			"what was promised; for each of its\n" +
			"processes whether it has the library, and otherwise the cause; and what the node and kubelet said about it.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			c, err := s.connect(s)
			if err != nil {
				return err
			}
			r, err := whyPod(cmd.Context(), c, client.ObjectKey{Namespace: c.namespace, Name: arguments[0]})
			if err != nil {
				return err
			}
			if o.json() {
				return printJSON(s.streams.Out, r)
			}
			return r.print(s.streams.Out)
		},
	}
	o.add(cmd)
	return cmd
}

// podReport is what is known of one pod.
type podReport struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	Phase     string `json:"phase"`
	// Reason says why the pod as a whole was left alone.
	Reason     string            `json:"reason,omitempty"`
	Missing    []string          `json:"missingClaims,omitempty"`
	Containers []containerReport `json:"containers"`
	// Unserved are programs without the library that opened files for writing.
	Unserved []coverage.Unserved `json:"unserved,omitempty"`
	Events   []string            `json:"events,omitempty"`
	// Unknown says why nothing is known of the processes.
	Unknown string `json:"unknown,omitempty"`
}

type containerReport struct {
	Name      string             `json:"name"`
	Mounts    []mountReport      `json:"mounts,omitempty"`
	Processes []coverage.Process `json:"processes,omitempty"`
}

type mountReport struct {
	Path     string `json:"path"`
	Claim    string `json:"claim"`
	VolumeID string `json:"volumeID,omitempty"`
	// Promised is the mode by annotations and class, Given the one in which the library serves the path; empty: it does
	// not.
	Promised string `json:"promised,omitempty"`
	Given    string `json:"given,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	Block    bool   `json:"block,omitempty"`
}

func whyPod(ctx context.Context, c *cluster, name client.ObjectKey) (*podReport, error) {
	var pod corev1.Pod
	if err := c.client.Get(ctx, name, &pod); err != nil {
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	r := &podReport{
		Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase),
		Containers: []containerReport{},
	}
	ours, missing, err := c.podVolumes(ctx, &pod)
	if err != nil {
		return nil, err
	}
	r.Missing = missing
	given := r.addContainers(&pod, ours)
	if len(ours) > 0 && !given {
		if r.Reason, err = c.notInjected(ctx, &pod); err != nil {
			return nil, err
		}
	}
	if len(ours) > 0 && pod.Spec.NodeName != "" {
		r.addProcesses(ctx, c, &pod)
	}
	if err := r.addEvents(ctx, c, &pod); err != nil {
		return nil, err
	}
	return r, nil
}

// addContainers lists where each container has our volumes, and says whether any of them is served.
func (r *podReport) addContainers(pod *corev1.Pod, ours map[string]podVolume) (given bool) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			report := containerReport{Name: c.Name}
			for _, m := range c.VolumeMounts {
				v, ok := ours[m.Name]
				if !ok {
					continue
				}
				mount := mountReport{
					Path: m.MountPath, Claim: v.claim, VolumeID: v.id, ReadOnly: m.ReadOnly,
					Promised: string(promise.PromisedMode(pod, c.Name, v.mode)),
				}
				if mode, ok := promise.GivenMode(c, path.Clean("/"+m.MountPath)); ok {
					mount.Given, given = string(mode), true
				}
				report.Mounts = append(report.Mounts, mount)
			}
			for _, d := range c.VolumeDevices {
				if v, ok := ours[d.Name]; ok {
					report.Mounts = append(report.Mounts, mountReport{Path: d.DevicePath, Claim: v.claim, VolumeID: v.id, Block: true})
				}
			}
			r.Containers = append(r.Containers, report)
		}
	}
	return given
}

// addProcesses asks the pod's node. Processes of ephemeral containers, which no template of the pod names, get a
// container of their own.
func (r *podReport) addProcesses(ctx context.Context, c *cluster, pod *corev1.Pod) {
	node, err := c.coverageOn(ctx, pod.Spec.NodeName)
	if err != nil {
		r.Unknown = explain(err).Error()
		return
	}
	r.Unknown = node.Incomplete
	for _, v := range node.Volumes {
		if v.Unknown != "" && r.mounts(v.ID) {
			r.Unknown = v.Unknown
		}
		for _, u := range v.Unserved {
			if u.PodUID == string(pod.UID) {
				r.Unserved = append(r.Unserved, u)
			}
		}
		for _, p := range v.Processes {
			if p.PodUID != string(pod.UID) {
				continue
			}
			i := slices.IndexFunc(r.Containers, func(c containerReport) bool { return c.Name == p.Container })
			if i < 0 {
				i = len(r.Containers)
				r.Containers = append(r.Containers, containerReport{Name: p.Container})
			}
			r.Containers[i].Processes = append(r.Containers[i].Processes, p)
		}
	}
}

// mounts says whether a container has the volume.
func (r *podReport) mounts(volumeID string) bool {
	return slices.ContainsFunc(r.Containers, func(c containerReport) bool {
		return slices.ContainsFunc(c.Mounts, func(m mountReport) bool { return m.VolumeID == volumeID })
	})
}

// told are the reasons of events that say something of a pod's volumes.
var told = []string{
	"FailedMount", "FailedAttachVolume", "FailedScheduling", events.ReasonLibraryNotLoaded, events.ReasonUnservedRefused,
	events.ReasonUnservedDurable, events.ReasonUnservedNotRefused, events.ReasonImagePreload, events.ReasonEmulated,
	events.ReasonStockExt4,
	events.ReasonAgentDied, events.ReasonRecovered, events.ReasonQuarantined, events.ReasonRawBlock,
}

const mostEvents = 10

func (r *podReport) addEvents(ctx context.Context, c *cluster, pod *corev1.Pod) error {
	var list corev1.EventList
	if err := c.client.List(ctx, &list, client.InNamespace(pod.Namespace), client.MatchingFields{
		"involvedObject.uid": string(pod.UID),
	}); err != nil {
		return fmt.Errorf("list events of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for i := range list.Items {
		if e := &list.Items[i]; slices.Contains(told, e.Reason) {
			r.Events = append(r.Events, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, strings.TrimSpace(e.Message)))
		}
	}
	r.Events = r.Events[max(0, len(r.Events)-mostEvents):]
	return nil
}
