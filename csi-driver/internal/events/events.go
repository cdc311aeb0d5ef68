// SPDX-License-Identifier: Apache-2.0

// Package events tells Kubernetes users what happened, on the object they look at: the claim, the pod, or the node.
package events

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Reasons of our events.
const (
	ReasonEmulated = "EmulatedVolume"
	// ReasonLessDurable: nobody says that the volume's memory keeps what was stored when the power fails.
	ReasonLessDurable = "LessDurableMemory"
	ReasonQuarantined = "RecoveryQuarantined"
	ReasonRecovered   = "RecoveryReplayed"
	ReasonAgentDied   = "AgentDied"
	ReasonNodeGone    = "VolumeNodeGone"
	// ReasonSnapshotNodeUnknown: nobody serves a VolumeSnapshotContent or VolumeGroupSnapshotContent, because what it is
	// of is on no node.
	ReasonSnapshotNodeUnknown = "SnapshotNodeUnknown"
	// ReasonLongWork: something takes as long as a volume is large, which its user waits for.
	ReasonLongWork = "LongWork"
	// ReasonRawBlock: the volume is a device, which the library does not serve.
	ReasonRawBlock = "RawBlockVolume"
	// ReasonStockExt4: the volume is served without the kernel module that its node has.
	ReasonStockExt4       = "StockExt4"
	ReasonLibraryRestored = "LibraryRestored"
	ReasonLibraryMissing  = "LibraryMissing"
	// ReasonLibraryNotLoaded: a process of the pod runs without the library.
	ReasonLibraryNotLoaded = "LibraryNotLoaded"
	// ReasonUnservedRefused: a program of the pod that runs without the library was kept from writing;
	// ReasonUnservedDurable: it makes files synchronous; ReasonUnservedNotRefused: the agent cannot keep it from writing.
	ReasonUnservedRefused    = "UnservedRefused"
	ReasonUnservedDurable    = "UnservedDurable"
	ReasonUnservedNotRefused = "UnservedNotRefused"
	// ReasonUnprotected: a process of the pod is to be kept from stray stores, and there is no protection key for it.
	ReasonUnprotected = "StoresNotProtected"
	// ReasonRecreated: the pod was evicted, because it had been created without the library.
	ReasonRecreated = "RecreatedForLibrary"
	// ReasonImagePreload: what the pod's image preloads by itself is lost.
	ReasonImagePreload = "ImagePreloadReplaced"
	// ReasonOrphan: something was found on the node that no volume accounts for.
	ReasonOrphan = "OrphanFound"
	// ReasonEraseFailed: the bytes of a deleted volume are still there.
	ReasonEraseFailed = "EraseFailed"
	// ReasonThinPoolNearFull: a thin pool is nearly full, and there is still time to make room.
	ReasonThinPoolNearFull = "ThinPoolNearFull"
	// ReasonThinPoolFull: nothing new is made in a thin pool, or writes to its volumes fail.
	ReasonThinPoolFull = "ThinPoolFull"
	// ReasonRegionUnusable: a region of persistent memory that was given to the driver cannot be used.
	ReasonRegionUnusable = "RegionUnusable"
	// ReasonPMEMCSI: volumes of pmem-csi are on the node.
	ReasonPMEMCSI = "PmemCSIFound"
	// ReasonModule begins the reasons of events about the kernel module; its state follows.
	ReasonModule = "KernelModule"
)

// Recorder sends events. It never blocks its caller and never fails: an event is a courtesy, not part of an operation.
type Recorder interface {
	OnPVC(ctx context.Context, pvc volume.PVC, warning bool, reason, message string)
	OnPod(ctx context.Context, pod volume.Pod, warning bool, reason, message string)
	OnNode(ctx context.Context, node string, warning bool, reason, message string)
}

// Discard is a Recorder for a run without a cluster; it leaves a line in the log.
type Discard struct{}

// OnPVC implements Recorder.
func (Discard) OnPVC(ctx context.Context, pvc volume.PVC, _ bool, reason, message string) {
	klog.FromContext(ctx).V(3).Info("Event", "pvc", klog.KRef(pvc.Namespace, pvc.Name), "reason", reason,
		"message", message)
}

// OnPod implements Recorder.
func (Discard) OnPod(ctx context.Context, pod volume.Pod, _ bool, reason, message string) {
	klog.FromContext(ctx).V(3).Info("Event", "pod", klog.KRef(pod.Namespace, pod.Name), "reason", reason,
		"message", message)
}

// OnNode implements Recorder.
func (Discard) OnNode(ctx context.Context, node string, _ bool, reason, message string) {
	klog.FromContext(ctx).V(3).Info("Event", "node", node, "reason", reason, "message", message)
}

const (
	queueLength   = 256
	lookupTimeout = 10 * time.Second
)

// Cluster is a Recorder that sends to the API server.
type Cluster struct {
	client   kubernetes.Interface
	recorder record.EventRecorder
	queue    chan func()
}

var _ Recorder = (*Cluster)(nil)

// NewCluster returns a Recorder that works until ctx is done.
func NewCluster(ctx context.Context, client kubernetes.Interface, component, host string) *Cluster {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	c := &Cluster{
		client:   client,
		recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: host}),
		queue:    make(chan func(), queueLength),
	}
	go c.work(ctx)
	return c
}

func (c *Cluster) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-c.queue:
			job()
		}
	}
}

// OnPVC implements Recorder. `kubectl describe pvc` selects events by the claim's UID, which csi-provisioner does not
// pass on, so the claim is looked up first, in the background.
func (c *Cluster) OnPVC(ctx context.Context, pvc volume.PVC, warning bool, reason, message string) {
	if pvc.Name == "" {
		Discard{}.OnPVC(ctx, pvc, warning, reason, message)
		return
	}
	logger := klog.FromContext(ctx)
	job := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		claim, err := c.client.CoreV1().PersistentVolumeClaims(pvc.Namespace).Get(ctx, pvc.Name, metav1.GetOptions{})
		if err != nil {
			logger.Error(err, "Cannot send an event", "pvc", klog.KRef(pvc.Namespace, pvc.Name), "reason", reason,
				"message", message)
			return
		}
		c.recorder.Event(claim, eventType(warning), reason, message)
	}
	select {
	case c.queue <- job:
	default:
		logger.Info("Too many events, dropped one", "pvc", klog.KRef(pvc.Namespace, pvc.Name), "reason", reason,
			"message", message)
	}
}

// OnPod implements Recorder.
func (c *Cluster) OnPod(ctx context.Context, pod volume.Pod, warning bool, reason, message string) {
	if pod.Name == "" {
		Discard{}.OnPod(ctx, pod, warning, reason, message)
		return
	}
	c.recorder.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
	}, eventType(warning), reason, message)
}

// OnNode implements Recorder. `kubectl describe node` looks for events by the node's name in place of its UID, as
// kubelet sends them.
func (c *Cluster) OnNode(_ context.Context, node string, warning bool, reason, message string) {
	c.recorder.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
		eventType(warning), reason, message)
}

func eventType(warning bool) string {
	if warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
