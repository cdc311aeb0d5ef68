// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

const (
	// settle is how long the writer waits after a CSI call for others that belong to it.
	settle = time.Second
	// syncTimeout bounds one round, in which each request waits for the limit of requests too.
	syncTimeout = 2 * time.Minute
	// firstRetry and lastRetry bound the wait after a round that failed.
	firstRetry, lastRetry = 2 * time.Second, time.Minute
	// resync is after how many heartbeats the writer looks whether somebody removed its objects.
	resync = 12
)

// Config of a Writer.
type Config struct {
	NodeName string
	Node     Node
	Module   Module
	Cluster  *Cluster
	// Interval is how often the node is looked at besides the moments after CSI calls.
	Interval time.Duration
	// Heartbeat is the longest time after which the SplitFSNode is written although nothing changed.
	Heartbeat time.Duration
	Clock     clock.PassiveClock
}

// Writer keeps the objects of one node as the node is. It writes what changed, and a heartbeat.
type Writer struct {
	config Config
	poke   chan struct{}

	// The rest belongs to Run's goroutine.
	adopted   bool
	beats     int
	nodeState written
	nodeUID   types.UID
	volumes   map[string]*written

	writes  *prometheus.CounterVec
	success prometheus.Gauge
}

// written is what the API server has of one object, as far as the writer knows.
type written struct {
	// fingerprint is of the last write; empty: the object is there, its content is not known.
	fingerprint string
	// next is when the object is written again even if nothing changes.
	next       time.Time
	conditions []metav1.Condition
	poolUsed   int64
	exists     bool
}

// NewWriter returns a Writer.
func NewWriter(config Config) *Writer {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Writer{
		config: config, poke: make(chan struct{}, 1), volumes: map[string]*written{},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "splitfs_status_writes_total", Help: "Requests to write or remove the status objects of this node.",
		}, []string{"kind", "result"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "splitfs_status_last_success_timestamp_seconds",
			Help: "When the status objects were last known to be right, in seconds since 1970.",
		}),
	}
}

// Metrics are the writer's own.
func (w *Writer) Metrics() []prometheus.Collector { return []prometheus.Collector{w.writes, w.success} }

// changing are the CSI calls after which the objects may be out of date.
var changing = map[string]bool{
	"/csi.v1.Controller/CreateVolume": true, "/csi.v1.Controller/DeleteVolume": true,
	"/csi.v1.Node/NodeStageVolume": true, "/csi.v1.Node/NodeUnstageVolume": true,
	"/csi.v1.Node/NodePublishVolume": true, "/csi.v1.Node/NodeUnpublishVolume": true,
	"/csi.v1.Node/NodeExpandVolume": true,
}

// Interceptor has the writer look at the node soon after a call that may have changed it. The call does not wait.
func (w *Writer) Interceptor(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if changing[info.FullMethod] {
		w.Poke()
	}
	return resp, err
}

// Poke has the writer look at the node soon. It never blocks.
func (w *Writer) Poke() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Run writes until ctx is done. What goes wrong with the API server is told in the log and tried again, ever more
// slowly.
func (w *Writer) Run(ctx context.Context) {
	failures := 0
	for {
		syncCtx, cancel := context.WithTimeout(ctx, syncTimeout)
		err := w.sync(syncCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			w.success.Set(float64(w.config.Clock.Now().Unix()))
			if !w.wait(ctx, jitter(w.config.Interval), true) {
				return
			}
			continue
		}
		klog.FromContext(ctx).Error(err,
			"Cannot write the status of the node and its volumes; volumes are served all the same")
		failures++
		// The cluster's control plane is in trouble: no CSI call shortens the wait.
		if !w.wait(ctx, jitter(backoff(failures)), false) {
			return
		}
	}
}

func backoff(failures int) time.Duration {
	return min(lastRetry, firstRetry<<min(failures-1, 10))
}

// jitter spreads the nodes of a cluster, which may all have started at the same moment.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*0.2*float64(d))
}

// wait returns false when ctx is done. With poked it ends early after Poke.
func (w *Writer) wait(ctx context.Context, d time.Duration, poked bool) bool {
	poke := w.poke
	if !poked {
		poke = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-poke:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(settle):
		return true
	}
}

// sync brings the objects to what the node is now. What cannot be written now does not keep the rest from being
// written.
func (w *Writer) sync(ctx context.Context) error {
	if !w.adopted {
		if err := w.adopt(ctx); err != nil {
			return err
		}
	}
	s := observe(ctx, w.config.NodeName, w.config.Node, w.config.Module)
	beat, err := w.syncNode(ctx, s.node)
	if err != nil {
		return err
	}
	if beat {
		w.beats++
		w.adopted = w.beats%resync != 0
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(s.volumes)) {
		errs = append(errs, w.syncVolume(ctx, id, s.volumes[id], beat))
	}
	if s.complete {
		errs = append(errs, w.removeGone(ctx, s.volumes))
	}
	return errors.Join(errs...)
}

// adopt learns what an earlier node service, or this one before somebody removed objects, has written.
func (w *Writer) adopt(ctx context.Context) error {
	found, err := w.config.Cluster.volumes(ctx, w.config.NodeName)
	if err != nil {
		return err
	}
	volumes := map[string]*written{}
	for id, status := range found {
		if known := w.volumes[id]; known != nil {
			volumes[id] = known
			continue
		}
		volumes[id] = &written{exists: true, conditions: status.Conditions}
	}
	if w.nodeState.conditions == nil {
		status, err := w.config.Cluster.node(ctx, w.config.NodeName)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		w.nodeState.conditions = status.Conditions
	}
	w.volumes, w.adopted = volumes, true
	return nil
}

// syncNode says whether it wrote a heartbeat.
func (w *Writer) syncNode(ctx context.Context, status v1alpha1.SplitFSNodeStatus) (beat bool, err error) {
	now := w.config.Clock.Now()
	status.Conditions = merged(w.nodeState.conditions, status.Conditions, now)
	print, err := nodeFingerprint(status)
	if err != nil {
		return false, err
	}
	beat = !now.Before(w.nodeState.next)
	if w.nodeState.exists && !beat && print == w.nodeState.fingerprint {
		return false, nil
	}
	status.HeartbeatTime = metav1.NewTime(now)
	if w.nodeState.exists {
		err = w.config.Cluster.writeNode(ctx, w.config.NodeName, status)
	}
	if !w.nodeState.exists || apierrors.IsNotFound(err) {
		var uid types.UID
		if uid, err = w.config.Cluster.createNode(ctx, w.config.NodeName); err == nil {
			if w.nodeUID != "" && w.nodeUID != uid {
				// The volumes' objects belong to the node's: Kubernetes removes those of an older one, so all are written anew.
				w.volumes, w.adopted = map[string]*written{}, false
			}
			w.nodeUID = uid
			err = w.config.Cluster.writeNode(ctx, w.config.NodeName, status)
		}
	}
	w.count("SplitFSNode", err)
	if err != nil {
		return false, fmt.Errorf("write SplitFSNode %s: %w", w.config.NodeName, err)
	}
	// Between three quarters and the whole: nodes that started together do not go on together.
	next := now.Add(w.config.Heartbeat*3/4 + time.Duration(rand.Int64N(int64(w.config.Heartbeat)/4+1)))
	w.nodeState = written{fingerprint: print, next: next, conditions: status.Conditions, exists: true}
	return beat, nil
}

func (w *Writer) syncVolume(ctx context.Context, id string, status v1alpha1.SplitFSVolumeStatus, beat bool) error {
	now := w.config.Clock.Now()
	have := w.volumes[id]
	if have == nil {
		have = &written{}
	}
	status.Conditions = merged(have.conditions, status.Conditions, now)
	print, err := volumeFingerprint(status)
	if err != nil {
		return err
	}
	used := poolUsed(status)
	if have.exists && print == have.fingerprint && (!beat || !drifted(have.poolUsed, used, status)) {
		return nil
	}
	// An object that was found and not written yet may belong to a SplitFSNode that is gone.
	known := have.exists && have.fingerprint != ""
	if known {
		err = w.config.Cluster.writeVolume(ctx, id, status)
	}
	if !known || apierrors.IsNotFound(err) {
		if err = w.config.Cluster.createVolume(ctx, id, w.config.NodeName, w.nodeUID); err == nil {
			err = w.config.Cluster.writeVolume(ctx, id, status)
		}
	}
	w.count("SplitFSVolume", err)
	if err != nil {
		return fmt.Errorf("write SplitFSVolume %s: %w", id, err)
	}
	w.volumes[id] = &written{fingerprint: print, conditions: status.Conditions, poolUsed: used, exists: true}
	return nil
}

// removeGone removes the objects of volumes that are not on the node any more.
func (w *Writer) removeGone(ctx context.Context, volumes map[string]v1alpha1.SplitFSVolumeStatus) error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(w.volumes)) {
		if _, there := volumes[id]; there {
			continue
		}
		err := w.config.Cluster.removeVolume(ctx, id)
		w.count("SplitFSVolume", err)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove SplitFSVolume %s: %w", id, err))
			continue
		}
		delete(w.volumes, id)
	}
	return errors.Join(errs...)
}

func (w *Writer) count(kind string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	w.writes.WithLabelValues(kind, result).Inc()
}
