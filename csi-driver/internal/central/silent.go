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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

// reasonSilent is the reason of a condition that nobody can know.
const reasonSilent = "NoHeartbeat"

// Silent marks the SplitFSNodes of node services that are not heard of any more: what such an object says of its node is old.
type Silent struct {
	client   dynamic.Interface
	informer cache.SharedIndexInformer
	after    time.Duration
	clock    clock.PassiveClock
	gauge    prometheus.Gauge
}

// NewSilent returns a Silent that marks a node after it has not been heard of for so long.
func NewSilent(client dynamic.Interface, after time.Duration, clk clock.PassiveClock) (*Silent, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.NodeResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(keepHeartbeat); err != nil {
		return nil, fmt.Errorf("watch SplitFSNodes: %w", err)
	}
	return &Silent{
		client: client, informer: informer, after: after, clock: clk,
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "splitfs_silent_nodes", Help: "Nodes whose node service has not been heard of for a while.",
		}),
	}, nil
}

// keepHeartbeat drops what is not needed here of a SplitFSNode: there may be thousands.
func keepHeartbeat(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	var n v1alpha1.SplitFSNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(full.Object, &n); err != nil {
		return nil, fmt.Errorf("read SplitFSNode %s: %w", full.GetName(), err)
	}
	n.ManagedFields = nil
	n.Status = v1alpha1.SplitFSNodeStatus{HeartbeatTime: n.Status.HeartbeatTime, Conditions: n.Status.Conditions}
	return &n, nil
}

// Metric is the number of nodes that are silent.
func (s *Silent) Metric() prometheus.Collector { return s.gauge }

// Run checks at every interval until ctx is done.
func (s *Silent) Run(ctx context.Context, interval time.Duration) {
	go s.informer.RunWithContext(ctx)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !s.informer.HasSynced() {
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
	var errs []error
	for _, object := range s.informer.GetStore().List() {
		n, ok := object.(*v1alpha1.SplitFSNode)
		// One without a heartbeat was just made, and is about to get one.
		if !ok || n.Status.HeartbeatTime.IsZero() || now.Sub(n.Status.HeartbeatTime.Time) < s.after {
			continue
		}
		silent++
		if ready := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeReady); ready == nil || ready.Status != metav1.ConditionUnknown {
			errs = append(errs, s.mark(ctx, n, now))
		}
	}
	s.gauge.Set(float64(silent))
	return errors.Join(errs...)
}

// mark changes this one condition. The node service takes it back with its next word.
func (s *Silent) mark(ctx context.Context, n *v1alpha1.SplitFSNode, now time.Time) error {
	klog.FromContext(ctx).Info("A node service is not heard of", "node", n.Name, "last-heartbeat", n.Status.HeartbeatTime.Time)
	// Only if nothing was written since: a node that comes back at this very moment stays as it says.
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": n.Name, "resourceVersion": n.ResourceVersion},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": v1alpha1.NodeReady, "status": string(metav1.ConditionUnknown), "reason": reasonSilent,
			"message": fmt.Sprintf("the node service was last heard of at %s; see whether node %s is up and its pod of the DaemonSet splitfs-node runs. Volumes in use keep working while it is away",
				n.Status.HeartbeatTime.UTC().Format(time.RFC3339), n.Name),
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		}}},
	}}
	object.SetGroupVersionKind(v1alpha1.NodeKind)
	_, err := s.client.Resource(v1alpha1.NodeResource).ApplyStatus(ctx, n.Name, object, metav1.ApplyOptions{FieldManager: "splitfs-csi-controller", Force: true})
	if err != nil {
		return fmt.Errorf("mark SplitFSNode %s: %w", n.Name, err)
	}
	return nil
}
