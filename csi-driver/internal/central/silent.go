// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

// reasonSilent is the reason of a condition that nobody can know.
const reasonSilent = "NoHeartbeat"

// Silent marks the SplitFSNodes of node services that are not heard of any more: what such an object says of its node
// is old. The time of a heartbeat is that of the node's clock, which may be wrong or set; only that it changes counts.
type Silent struct {
	client  dynamic.Interface
	objects *NodeObjects
	after   time.Duration
	clock   clock.PassiveClock
	gauge   prometheus.Gauge
	// heard is the last word of each node, and when it was first seen here.
	heard map[string]word
}

type word struct {
	heartbeat time.Time
	seen      time.Time
}

// NewSilent returns a Silent that goes by these objects, which somebody runs, and marks a node after it has not been
// heard of for so long.
func NewSilent(client dynamic.Interface, objects *NodeObjects, after time.Duration, clk clock.PassiveClock) *Silent {
	return &Silent{
		client: client, objects: objects, after: after, clock: clk, heard: map[string]word{},
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "splitfs_silent_nodes", Help: "Nodes whose node service has not been heard of for a while.",
		}),
	}
}

// Metric is the number of nodes that are silent.
func (s *Silent) Metric() prometheus.Collector { return s.gauge }

// Run checks at every interval until ctx is done.
func (s *Silent) Run(ctx context.Context, interval time.Duration) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !s.objects.synced() {
			return
		}
		if err := s.check(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot mark all nodes that are not heard of")
		}
	}, interval)
}

func (s *Silent) check(ctx context.Context) error {
	now := s.clock.Now()
	silent := 0
	heard := map[string]word{}
	var errs []error
	for _, n := range s.objects.list() {
		if n.Status.HeartbeatTime.IsZero() {
			continue // it was just made, and is about to get one
		}
		last, known := s.heard[n.Name]
		if !known || !last.heartbeat.Equal(n.Status.HeartbeatTime.Time) {
			last = word{heartbeat: n.Status.HeartbeatTime.Time, seen: now}
		}
		heard[n.Name] = last
		ready := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeReady)
		marked := ready != nil && ready.Status == metav1.ConditionUnknown
		switch {
		case marked: // also by the controller before this one
			silent++
		case now.Sub(last.seen) >= s.after:
			silent++
			errs = append(errs, s.mark(ctx, n, now))
		}
	}
	s.heard = heard
	s.gauge.Set(float64(silent))
	return errors.Join(errs...)
}

// mark changes this one condition. The node service takes it back with its next word.
func (s *Silent) mark(ctx context.Context, n *v1alpha1.SplitFSNode, now time.Time) error {
	klog.FromContext(ctx).Info("A node service is not heard of", "node", n.Name,
		"last-heartbeat", n.Status.HeartbeatTime.Time)
	// Only if nothing was written since: a node that comes back at this very moment stays as it says.
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": n.Name, "resourceVersion": n.ResourceVersion},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": v1alpha1.NodeReady, "status": string(metav1.ConditionUnknown), "reason": reasonSilent,
			"message": fmt.Sprintf("the node service was last heard of at %s; see whether node %s is up and its pod of the "+
				"DaemonSet splitfs-node runs. Volumes in use keep working while it is away",
				n.Status.HeartbeatTime.UTC().Format(time.RFC3339), n.Name),
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		}}},
	}}
	object.SetGroupVersionKind(v1alpha1.NodeKind)
	_, err := s.client.Resource(v1alpha1.NodeResource).ApplyStatus(ctx, n.Name, object, metav1.ApplyOptions{
		FieldManager: "splitfs-csi-controller", Force: true,
	})
	if err != nil {
		return fmt.Errorf("mark SplitFSNode %s: %w", n.Name, err)
	}
	return nil
}
