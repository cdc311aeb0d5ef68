// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const (
	// recreateAfter is how long a pod waits for a volume that its node refuses it. A pod that is made anew and is no
	// better waits twice as long as the one before it.
	recreateAfter = time.Minute
	// recreateMost is how often the pods of one controller are made anew: a controller whose pods never get the library
	// keeps the last ones.
	recreateMost = 5
	// recreateForget is how long ago the last time was that counts.
	recreateForget = 6 * time.Hour
	// recreateAtOnce bounds what one look does to a cluster in which an injector was away for long.
	recreateAtOnce = 10
)

// Recreate evicts pods that their nodes refuse a volume, because they were created while no injector answered. Their
// controllers create them anew, through the injector. A pod without a controller is left alone: nobody would.
type Recreate struct {
	client   kubernetes.Interface
	view     *View
	checker  *promise.Checker
	recorder record.EventRecorder
	clock    clock.PassiveClock
	counter  prometheus.Counter
	// tries are by the UID of a pod's controller.
	tries map[types.UID]tries
	// seen are the pods, by UID, that this process sees wait on their nodes.
	seen map[types.UID]waiter
}

// tries is how often in a row the pods of a controller were made anew: those that were there together count once.
type tries struct {
	count int
	last  time.Time
}

type waiter struct {
	// since is when the pod was first seen. The time at which the API server says that it was created is no help: where
	// this machine's clock was set, a pod of a moment ago looks old.
	since time.Time
	// tries is how often pods of its controller had been made anew by then.
	tries int
}

// NewRecreate returns a Recreate. Pods of the exempt namespaces may do without the library.
func NewRecreate(client kubernetes.Interface, view *View, exempt []string, recorder record.EventRecorder,
	clk clock.PassiveClock) *Recreate {
	return &Recreate{
		client: client, view: view, checker: promise.NewChecker(client, exempt), recorder: recorder, clock: clk,
		tries: map[types.UID]tries{}, seen: map[types.UID]waiter{},
		counter: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "splitfs_pods_recreated_total",
			Help: "Pods that were evicted because they had been created without the library.",
		}),
	}
}

// Metric counts the pods that were evicted.
func (r *Recreate) Metric() prometheus.Collector { return r.counter }

// Run looks at every interval until ctx is done.
func (r *Recreate) Run(ctx context.Context, interval time.Duration) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if r.view.Check(ctx) != nil {
			return // not synced yet
		}
		if err := r.check(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot look for pods without the library")
		}
	}, interval)
}

func (r *Recreate) check(ctx context.Context) error {
	// A pod whose volumes are not mounted is in this phase.
	list, err := r.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "status.phase=Pending",
	})
	if err != nil {
		return fmt.Errorf("list pods that wait: %w", err)
	}
	claims, err := r.claims()
	if err != nil {
		return err
	}
	now := r.clock.Now()
	for uid, t := range r.tries {
		if now.Sub(t.last) > recreateForget {
			delete(r.tries, uid)
		}
	}
	r.see(list.Items, now)
	var errs []error
	evicted := 0
	for i := range list.Items {
		pod := &list.Items[i]
		if evicted == recreateAtOnce {
			break
		}
		if !r.due(pod, now) {
			continue
		}
		why, err := r.without(ctx, pod, claims)
		if err == nil && why != nil {
			evicted++
			err = r.evict(ctx, pod, now, why)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// claims are our volumes by the claim that they are bound to.
func (r *Recreate) claims() (map[types.NamespacedName]*corev1.PersistentVolume, error) {
	volumes, err := r.view.volumes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	claims := map[types.NamespacedName]*corev1.PersistentVolume{}
	for _, pv := range volumes {
		switch pv.Status.Phase {
		case corev1.VolumeReleased, corev1.VolumeFailed: // the claim that it names is gone; another may have its name
			continue
		}
		if ref := pv.Spec.ClaimRef; ref != nil && ours(pv) && !isLibrary(pv) {
			claims[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = pv
		}
	}
	return claims, nil
}

// see notes the pods that wait and are new, and forgets those that do not any more. now has a monotonic reading, which
// is what times are compared by.
func (r *Recreate) see(pods []corev1.Pod, now time.Time) {
	seen := make(map[types.UID]waiter, len(pods))
	for i := range pods {
		if pods[i].Spec.NodeName == "" {
			continue
		}
		w, known := r.seen[pods[i].UID]
		if !known {
			w.since = now
			if controller := metav1.GetControllerOf(&pods[i]); controller != nil {
				w.tries = r.tries[controller.UID].count
			}
		}
		seen[pods[i].UID] = w
	}
	r.seen = seen
}

// due says whether a pod has waited on its node for so long that it may be evicted, and its controller has not been
// through this too often.
func (r *Recreate) due(pod *corev1.Pod, now time.Time) bool {
	if metav1.GetControllerOf(pod) == nil || pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending ||
		pod.DeletionTimestamp != nil {
		return false
	}
	w := r.seen[pod.UID]
	return w.tries < recreateMost && now.Sub(w.since) >= recreateAfter<<w.tries
}

// without returns what the pod's node says of it, nil when it has what it was promised.
func (r *Recreate) without(ctx context.Context, pod *corev1.Pod,
	claims map[types.NamespacedName]*corev1.PersistentVolume) (why, err error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := types.NamespacedName{Namespace: pod.Namespace}
		switch {
		case v.PersistentVolumeClaim != nil && !v.PersistentVolumeClaim.ReadOnly:
			name.Name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name.Name = pod.Name + "-" + v.Name
		}
		pv, there := claims[name]
		if !there {
			continue
		}
		_, err := r.checker.Check(ctx, promise.Use{
			VolumeID: pv.Spec.CSI.VolumeHandle, Mode: modeOf(pv), PV: pv.Name,
			Pod: volume.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		})
		switch {
		case errors.Is(err, promise.ErrWithoutLibrary):
			return err, nil
		case err != nil && !errors.Is(err, volume.ErrPrecondition) && !apierrors.IsNotFound(err):
			// it is gone, or was replaced
			return nil, err
		}
	}
	return nil, nil
}

// modeOf is the mode of a volume: after a change, else the one that it was made with.
func modeOf(pv *corev1.PersistentVolume) contract.Mode {
	if mode := pv.Annotations[contract.AnnotationVolumeMode]; mode != "" {
		return contract.Mode(mode)
	}
	return contract.Mode(pv.Spec.CSI.VolumeAttributes[contract.ParameterMode])
}

func (r *Recreate) evict(ctx context.Context, pod *corev1.Pod, now time.Time, why error) error {
	uid := pod.UID
	err := r.client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone already
	}
	if err != nil {
		return fmt.Errorf("evict pod %s/%s, which has not the library: %w", pod.Namespace, pod.Name, err)
	}
	controller := metav1.GetControllerOf(pod)
	count := r.seen[pod.UID].tries + 1
	r.tries[controller.UID] = tries{count: max(count, r.tries[controller.UID].count), last: now}
	r.counter.Inc()
	message := fmt.Sprintf("evicted, so that %s %s creates it anew with the library (time %d of at most %d): %v",
		controller.Kind, controller.Name, count, recreateMost, why)
	klog.FromContext(ctx).Info("Evicted a pod without the library", "pod", klog.KObj(pod), "controller", controller.Name,
		"time", count)
	r.recorder.Event(pod, corev1.EventTypeWarning, events.ReasonRecreated, message)
	return nil
}
