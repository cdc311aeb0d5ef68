// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

var (
	contentResource = schema.GroupVersionResource{
		Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents",
	}
	contentKind = contentResource.GroupVersion().WithKind("VolumeSnapshotContent")
)

// managedBy is the label by which csi-snapshotter, one on each node, knows the contents that are its own. The snapshot
// controller puts it on those it makes.
const managedBy = "snapshot.storage.kubernetes.io/managed-by"

// contentsRetry is how often what could not be labelled is looked at again.
const contentsRetry = time.Minute

// Contents labels VolumeSnapshotContents that were made by hand with the node that has their snapshot: without, no
// csi-snapshotter serves them. A label that is there stays as it is.
type Contents struct {
	client   dynamic.Interface
	informer cache.SharedIndexInformer
	view     *View
	recorder record.EventRecorder
	changed  chan struct{}
	// reported are contents of which it was told that no node has their snapshot.
	reported map[types.UID]bool
}

// content is what is needed of a VolumeSnapshotContent; handle is "" for one that needs no label.
type content struct {
	metav1.ObjectMeta
	handle string
}

// NewContents returns a Contents; the cluster must have the custom resource.
func NewContents(client dynamic.Interface, view *View, recorder record.EventRecorder) (*Contents, error) {
	c := &Contents{
		client: client, view: view, recorder: recorder, changed: make(chan struct{}, 1), reported: map[types.UID]bool{},
	}
	c.informer = dynamicinformer.NewFilteredDynamicInformer(client, contentResource, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	if err := c.informer.SetTransform(keepContent); err != nil {
		return nil, fmt.Errorf("watch VolumeSnapshotContents: %w", err)
	}
	look := func() {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() }, UpdateFunc: func(any, any) { look() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch VolumeSnapshotContents: %w", err)
	}
	return c, nil
}

// keepContent drops what is not needed here of a VolumeSnapshotContent.
func keepContent(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := &content{
		ObjectMeta: metav1.ObjectMeta{Name: full.GetName(), UID: full.GetUID(), ResourceVersion: full.GetResourceVersion()},
	}
	driver, _, _ := unstructured.NestedString(full.Object, "spec", "driver")
	if _, labelled := full.GetLabels()[managedBy]; driver == contract.Driver && !labelled {
		kept.handle, _, _ = unstructured.NestedString(full.Object, "spec", "source", "snapshotHandle")
	}
	return kept, nil
}

// Run labels contents as they come, until ctx is done.
func (c *Contents) Run(ctx context.Context) {
	go c.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), append(slices.Clone(c.view.synced), c.informer.HasSynced)...) {
		return
	}
	retry := time.NewTicker(contentsRetry)
	defer retry.Stop()
	for {
		if err := c.check(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot label all VolumeSnapshotContents with their nodes")
		}
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-retry.C: // a node may have come
		}
	}
}

func (c *Contents) check(ctx context.Context) error {
	reported := map[types.UID]bool{}
	var errs []error
	for _, object := range c.informer.GetStore().List() {
		made, ok := object.(*content)
		if !ok || made.handle == "" {
			continue
		}
		node, problem, err := c.nodeOf(made.handle)
		switch {
		case err != nil:
			errs = append(errs, err)
		case problem == "":
			errs = append(errs, c.label(ctx, made, node))
		default:
			if !c.reported[made.UID] {
				c.report(ctx, made, problem)
			}
			reported[made.UID] = true
		}
	}
	c.reported = reported
	return errors.Join(errs...)
}

// nodeOf returns the node that a snapshot is on, or why that is not known.
func (c *Contents) nodeOf(handle string) (node, problem string, err error) {
	if !volume.ValidSnapshotID(handle) {
		return "", fmt.Sprintf("%q is no snapshot of %s", handle, contract.Driver), nil
	}
	nodes, err := c.view.nodes.List(labels.Everything())
	if err != nil {
		return "", "", fmt.Errorf("list nodes: %w", err)
	}
	var fit []string
	for _, n := range nodes {
		if volume.SnapshotOnNode(handle, n.Name) {
			fit = append(fit, n.Name)
		}
	}
	switch len(fit) {
	case 0:
		return "", fmt.Sprintf("no node of this cluster has snapshot %s: its node is gone, or it is one of another cluster",
			handle), nil
	case 1:
		return fit[0], "", nil
	}
	return "", fmt.Sprintf(
		"snapshot %s is on one of the nodes %s, and its name does not say on which; set the label %s to that one",
		handle, strings.Join(slices.Sorted(slices.Values(fit)), ", "), managedBy), nil
}

// label labels a content, unless it was changed meanwhile: then it is looked at again.
func (c *Contents) label(ctx context.Context, made *content, node string) error {
	patch, err := metadataPatch(map[string]any{
		"resourceVersion": made.ResourceVersion, "labels": map[string]string{managedBy: node},
	})
	if err != nil {
		return err
	}
	_, err = c.client.Resource(contentResource).Patch(ctx, made.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("label VolumeSnapshotContent %s with node %s: %w", made.Name, node, err)
	}
	klog.FromContext(ctx).Info("Labelled a VolumeSnapshotContent with the node that has its snapshot",
		"content", made.Name, "snapshot-id", made.handle, "node", node)
	return nil
}

func (c *Contents) report(ctx context.Context, made *content, problem string) {
	klog.FromContext(ctx).Info("A VolumeSnapshotContent has no node", "content", made.Name, "problem", problem)
	version, kind := contentKind.ToAPIVersionAndKind()
	c.recorder.Event(&corev1.ObjectReference{APIVersion: version, Kind: kind, Name: made.Name, UID: made.UID},
		corev1.EventTypeWarning, events.ReasonSnapshotNodeUnknown, problem)
}
