// SPDX-License-Identifier: Apache-2.0

package modify

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// How long a change that could not be made now waits until it is tried again, after the first failure and at most.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = time.Minute
)

// Node is what a Worker needs of the node.
type Node interface {
	Name() string
	Modify(ctx context.Context, id string, changes volume.Changes) (*volume.Record, error)
}

// Worker makes the changes that the controller asks one node for. It watches nothing but PersistentVolumes of its node
// that wait for an answer.
type Worker struct {
	client kubernetes.Interface
	node   Node
	locks  *volume.Locks

	factory informers.SharedInformerFactory
	volumes corelisters.PersistentVolumeLister
	queue   workqueue.TypedRateLimitingInterface[string]
}

// NewWorker returns a Worker.
func NewWorker(client kubernetes.Interface, node Node, locks *volume.Locks) (*Worker, error) {
	selector := labels.Set{Label: LabelValue(node.Name())}.String()
	w := &Worker{
		client: client, node: node, locks: locks,
		factory: informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector })),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst,
			retryMax)),
	}
	volumes := w.factory.Core().V1().PersistentVolumes()
	w.volumes = volumes.Lister()
	add := func(obj any) {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			w.queue.Add(pv.Name)
		}
	}
	_, err := volumes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch for changes of volumes: %w", err)
	}
	return w, nil
}

// Run works until ctx is done.
func (w *Worker) Run(ctx context.Context) {
	w.factory.StartWithContext(ctx)
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	for {
		name, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		switch err := w.answer(ctx, name); {
		case err == nil:
			w.queue.Forget(name)
		case ctx.Err() == nil:
			if !errors.Is(err, volume.ErrBusy) && !apierrors.IsConflict(err) { // somebody was faster; nothing is wrong
				klog.FromContext(ctx).Error(err, "Cannot change a volume, trying again", "pv", name)
			}
			w.queue.AddRateLimited(name)
		}
		w.queue.Done(name)
	}
}

// answer makes the change that is asked for on a PersistentVolume, and says there that it did.
func (w *Worker) answer(ctx context.Context, name string) error {
	pv, err := w.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil // answered, or gone
	}
	if err != nil {
		return fmt.Errorf("read PersistentVolume %s: %w", name, err)
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != contract.Driver || pv.Labels[Label] != LabelValue(w.node.Name()) {
		return nil // none of ours, or not asked for any more
	}
	changes, ok, err := Requested(pv)
	if err != nil || !ok {
		return err
	}
	rec, err := w.modify(ctx, pv.Spec.CSI.VolumeHandle, changes)
	answer := Answer{Request: changes}
	var mode contract.Mode
	switch {
	case errors.Is(err, volume.ErrInvalid), errors.Is(err, volume.ErrNotFound):
		answer.Refused = err.Error()
	case err != nil:
		return err
	default:
		mode = rec.Mode
	}
	content, err := reply(pv, answer, mode)
	if err != nil {
		return fmt.Errorf("answer on PersistentVolume %s: %w", name, err)
	}
	if _, err := w.client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, content,
		metav1.PatchOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("answer on PersistentVolume %s: %w", name, err)
	}
	return nil
}

func (w *Worker) modify(ctx context.Context, id string, changes volume.Changes) (*volume.Record, error) {
	release, err := w.locks.TryLock(id, "modify")
	if err != nil {
		return nil, err
	}
	defer release()
	return w.node.Modify(ctx, id, changes)
}
