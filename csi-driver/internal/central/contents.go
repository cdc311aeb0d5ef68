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
	contentKind          = contentResource.GroupVersion().WithKind("VolumeSnapshotContent")
	groupContentResource = schema.GroupVersionResource{
		Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotcontents",
	}
	groupContentKind = groupContentResource.GroupVersion().WithKind("VolumeGroupSnapshotContent")
)

// managedBy is the label by which csi-snapshotter, one on each node, knows the contents that are its own. The snapshot
// controller puts it on those it makes of a single volume, and on no others.
const managedBy = "snapshot.storage.kubernetes.io/managed-by"

// memberOf is the annotation that the snapshot controller puts on contents that it makes for a group's snapshots: the
// group's ID.
const memberOf = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"

// contentsRetry is how often what could not be labelled is looked at again.
const contentsRetry = time.Minute

// Contents labels contents with the node that has their snapshot, or is to make it, where nobody else does: without the
// label no csi-snapshotter serves them. These are VolumeSnapshotContents that were made by hand or belong to a group,
// or all VolumeGroupSnapshotContents. A label that is there stays as it is.
type Contents struct {
	client   dynamic.ResourceInterface
	kind     schema.GroupVersionKind
	informer cache.SharedIndexInformer
	view     *View
	recorder record.EventRecorder
	changed  chan struct{}
	// reported are contents of which it was told that no node has their snapshot.
	reported map[types.UID]bool
}

// content is what is needed of an object; handles are IDs of snapshots, groups or volumes that say which node it is
// for, none for an object that needs no label.
type content struct {
	metav1.ObjectMeta
	handles []string
}

// NewContents returns a Contents for VolumeSnapshotContents; the cluster must have the custom resource.
func NewContents(client dynamic.Interface, view *View, recorder record.EventRecorder) (*Contents, error) {
	return newContents(client, contentResource, contentKind, snapshotHandles, view, recorder)
}

// NewGroupContents returns a Contents for VolumeGroupSnapshotContents; the cluster must have the custom resource.
func NewGroupContents(client dynamic.Interface, view *View, recorder record.EventRecorder) (*Contents, error) {
	return newContents(client, groupContentResource, groupContentKind, groupHandles, view, recorder)
}

func newContents(client dynamic.Interface, resource schema.GroupVersionResource, kind schema.GroupVersionKind,
	handles func(*unstructured.Unstructured) []string, view *View, recorder record.EventRecorder) (*Contents, error) {
	c := &Contents{
		client: client.Resource(resource), kind: kind, view: view, recorder: recorder, changed: make(chan struct{}, 1),
		reported: map[types.UID]bool{},
	}
	c.informer = dynamicinformer.NewFilteredDynamicInformer(client, resource, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	err := c.informer.SetTransform(func(object any) (any, error) { return keepContent(object, handles), nil })
	if err != nil {
		return nil, fmt.Errorf("watch %ss: %w", kind.Kind, err)
	}
	look := func() {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	_, err = c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() }, UpdateFunc: func(any, any) { look() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %ss: %w", kind.Kind, err)
	}
	return c, nil
}

// keepContent drops what is not needed here of an object.
func keepContent(object any, handles func(*unstructured.Unstructured) []string) any {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object
	}
	kept := &content{
		ObjectMeta: metav1.ObjectMeta{Name: full.GetName(), UID: full.GetUID(), ResourceVersion: full.GetResourceVersion()},
	}
	driver, _, _ := unstructured.NestedString(full.Object, "spec", "driver")
	if _, labelled := full.GetLabels()[managedBy]; driver == contract.Driver && !labelled {
		kept.handles = handles(full)
	}
	return kept
}

func snapshotHandles(full *unstructured.Unstructured) []string {
	if group := full.GetAnnotations()[memberOf]; group != "" {
		return []string{group}
	}
	if handle, _, _ := unstructured.NestedString(full.Object, "spec", "source", "snapshotHandle"); handle != "" {
		return []string{handle}
	}
	return nil
}

func groupHandles(full *unstructured.Unstructured) []string {
	group, _, _ := unstructured.NestedString(full.Object, "spec", "source", "groupSnapshotHandles",
		"volumeGroupSnapshotHandle")
	if group != "" {
		return []string{group}
	}
	volumes, _, _ := unstructured.NestedStringSlice(full.Object, "spec", "source", "volumeHandles")
	return volumes
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
			klog.FromContext(ctx).Error(err, "Cannot label all contents of snapshots with their nodes", "kind", c.kind.Kind)
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
		if !ok || len(made.handles) == 0 {
			continue
		}
		node, problem, err := c.nodeOf(made.handles)
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

// nodeOf returns the node that a snapshot is on, or why that is not known. Of volumes that are to be snapshotted
// together the first one says it: where they are on several nodes, its node refuses the group and says why.
func (c *Contents) nodeOf(handles []string) (node, problem string, err error) {
	for _, handle := range handles {
		if volume.ValidSnapshotID(handle) || volume.ValidGroupID(handle) {
			return c.snapshotNode(handle)
		}
		if !volume.ValidID(handle) {
			return "", fmt.Sprintf("%q is no snapshot of %s", handle, contract.Driver), nil
		}
		pv, err := c.view.volume(handle)
		if errors.Is(err, volume.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		if node := nodeOf(pv); node != "" {
			return node, "", nil
		}
	}
	return "", fmt.Sprintf("no PersistentVolume says on which node the volumes %s are", strings.Join(handles, ", ")), nil
}

// snapshotNode is nodeOf for a snapshot or a group of them: the ID says it.
func (c *Contents) snapshotNode(handle string) (node, problem string, err error) {
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
	_, err = c.client.Patch(ctx, made.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("label %s %s with node %s: %w", c.kind.Kind, made.Name, node, err)
	}
	klog.FromContext(ctx).Info("Labelled the content of a snapshot with its node", "kind", c.kind.Kind,
		"content", made.Name, "handle", made.handles[0], "node", node)
	return nil
}

func (c *Contents) report(ctx context.Context, made *content, problem string) {
	klog.FromContext(ctx).Info("The content of a snapshot has no node", "content", made.Name, "problem", problem)
	version, kind := c.kind.ToAPIVersionAndKind()
	c.recorder.Event(&corev1.ObjectReference{APIVersion: version, Kind: kind, Name: made.Name, UID: made.UID},
		corev1.EventTypeWarning, events.ReasonSnapshotNodeUnknown, problem)
}
