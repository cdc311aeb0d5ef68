// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/csi-driver/internal/events"
)

// Orphans reports volumes whose node is gone. It removes nothing: a Node object can be deleted by mistake, or to be
// registered again, and the data is then still there.
type Orphans struct {
	view     *View
	recorder record.EventRecorder
	grace    time.Duration
	clock    clock.PassiveClock

	// missing is when a node was first seen missing, reported which volumes were reported since.
	missing  map[string]time.Time
	reported map[string]bool
	gauge    prometheus.Gauge
}

// NewOrphans returns an Orphans that reports after a node has been missing for grace.
func NewOrphans(view *View, recorder record.EventRecorder, grace time.Duration, clk clock.PassiveClock) *Orphans {
	return &Orphans{
		view: view, recorder: recorder, grace: grace, clock: clk,
		missing: map[string]time.Time{}, reported: map[string]bool{},
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "splitfs_orphaned_volumes", Help: "Volumes whose node does not exist any more.",
		}),
	}
}

// Metric is the number of orphaned volumes.
func (o *Orphans) Metric() prometheus.Collector { return o.gauge }

// Run checks at every interval until ctx is done.
func (o *Orphans) Run(ctx context.Context, interval time.Duration) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if o.view.Check(ctx) != nil {
			return // not synced yet: every node would look missing
		}
		if err := o.check(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot check for volumes whose node is gone")
		}
	}, interval)
}

func (o *Orphans) check(ctx context.Context) error {
	volumes, err := o.view.volumes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	now := o.clock.Now()
	missing, reported := map[string]time.Time{}, map[string]bool{}
	orphans := 0
	for _, pv := range volumes {
		nodeName := nodeOf(pv)
		if !ours(pv) || isLibrary(pv) || nodeName == "" {
			continue
		}
		if _, err := o.view.nodes.Get(nodeName); err == nil {
			continue
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("look for node %s: %w", nodeName, err)
		}
		since, known := o.missing[nodeName]
		if !known {
			since = now
		}
		missing[nodeName] = since
		if now.Sub(since) < o.grace {
			continue
		}
		orphans++
		if !o.reported[pv.Name] {
			o.report(ctx, pv, nodeName, since)
		}
		reported[pv.Name] = true
	}
	o.missing, o.reported = missing, reported
	o.gauge.Set(float64(orphans))
	return nil
}

func (o *Orphans) report(ctx context.Context, pv *corev1.PersistentVolume, nodeName string, since time.Time) {
	message := fmt.Sprintf(
		"node %s, which holds volume %s, does not exist since %s. If it comes back so does the volume. If it never will, "+
			"the data is lost: "+
			"delete the claim, then the PersistentVolume, and remove the PersistentVolume's finalizers", nodeName,
		pv.Spec.CSI.VolumeHandle, since.UTC().Format(time.RFC3339))
	klog.FromContext(ctx).Info("A volume's node is gone", "pv", pv.Name, "node", nodeName)
	o.recorder.Event(pv, corev1.EventTypeWarning, events.ReasonNodeGone, message)
	if pv.Spec.ClaimRef != nil && pv.Status.Phase == corev1.VolumeBound {
		o.recorder.Event(pv.Spec.ClaimRef, corev1.EventTypeWarning, events.ReasonNodeGone, message)
	}
}
