// SPDX-License-Identifier: Apache-2.0

// Package central is what the cluster needs once: the endpoint for csi-resizer, and an eye on volumes whose node is
// gone.
package central

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"splitfs.io/splitfs/csi-driver/internal/driver"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// View is what the controller sees of the cluster.
type View struct {
	cluster    informers.SharedInformerFactory
	namespaced informers.SharedInformerFactory

	volumes    corelisters.PersistentVolumeLister
	nodes      corelisters.NodeLister
	capacities storagelisters.CSIStorageCapacityNamespaceLister

	byHandle cache.Indexer
	synced   []cache.InformerSynced
}

const handleIndex = "volume-handle"

// NewView returns a View; namespace is where csi-provisioner keeps its CSIStorageCapacity objects.
func NewView(client kubernetes.Interface, namespace string) (*View, error) {
	v := &View{
		cluster: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(keepNeeded)),
		namespaced: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
			informers.WithTransform(keepNeeded)),
	}
	volumes := v.cluster.Core().V1().PersistentVolumes()
	nodes := v.cluster.Core().V1().Nodes()
	capacities := v.namespaced.Storage().V1().CSIStorageCapacities()
	if err := volumes.Informer().AddIndexers(cache.Indexers{handleIndex: indexByHandle}); err != nil {
		return nil, fmt.Errorf("index volumes by handle: %w", err)
	}
	v.volumes, v.nodes = volumes.Lister(), nodes.Lister()
	v.capacities = capacities.Lister().CSIStorageCapacities(namespace)
	v.byHandle = volumes.Informer().GetIndexer()
	v.synced = []cache.InformerSynced{
		volumes.Informer().HasSynced, nodes.Informer().HasSynced, capacities.Informer().HasSynced,
	}
	return v, nil
}

func indexByHandle(obj any) ([]string, error) {
	if pv, ok := obj.(*corev1.PersistentVolume); ok && ours(pv) {
		return []string{pv.Spec.CSI.VolumeHandle}, nil
	}
	return nil, nil
}

func ours(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == contract.Driver
}

// isLibrary says whether a PersistentVolume of ours only shows a node's library to a pod: no data goes when that node
// goes.
func isLibrary(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI.VolumeAttributes[contract.VolumeKindAttribute] == contract.VolumeKindLibrary
}

// Start starts watching.
func (v *View) Start(ctx context.Context) {
	v.cluster.StartWithContext(ctx)
	v.namespaced.StartWithContext(ctx)
}

// Check says whether the view is complete.
func (v *View) Check(context.Context) error {
	for _, synced := range v.synced {
		if !synced() {
			return fmt.Errorf("%w: the cluster's volumes, nodes and capacities are not known yet", volume.ErrUnavailable)
		}
	}
	return nil
}

// volume returns the PersistentVolume of a volume ID.
func (v *View) volume(id string) (*corev1.PersistentVolume, error) {
	found, err := v.byHandle.ByIndex(handleIndex, id)
	if err != nil {
		return nil, fmt.Errorf("look for volume %s: %w", id, err)
	}
	for _, obj := range found {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			return pv, nil
		}
	}
	return nil, fmt.Errorf("volume %s: %w: no PersistentVolume has it", id, volume.ErrNotFound)
}

// nodeOf returns the node that a volume is on, "" when its PersistentVolume does not say.
func nodeOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == contract.TopologyKey && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				return e.Values[0]
			}
		}
	}
	return ""
}

// available returns how much the volumes of a StorageClass can still grow on a node; known is false when nobody has
// published it.
func (v *View) available(className, nodeName string) (bytes int64, known bool, err error) {
	list, err := v.capacities.List(labels.Everything())
	if err != nil {
		return 0, false, fmt.Errorf("list capacities: %w", err)
	}
	topology := labels.Set{contract.TopologyKey: nodeName}
	for _, c := range list {
		if c.StorageClassName != className || c.Capacity == nil || c.NodeTopology == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err != nil {
			return 0, false, fmt.Errorf("capacity %s: %w", c.Name, err)
		}
		if !selector.Empty() && selector.Matches(topology) {
			return c.Capacity.Value(), true, nil
		}
	}
	return 0, false, nil
}

// Controller is the CSI Controller service for csi-resizer.
type Controller struct {
	csi.UnimplementedControllerServer
	view   *View
	client kubernetes.Interface
}

// NewController returns the service.
func NewController(view *View, client kubernetes.Interface) *Controller {
	return &Controller{view: view, client: client}
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (*Controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return driver.ControllerCapabilities(
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	), nil
}

// ControllerExpandVolume implements csi.ControllerServer. The node grows the volume, in use; here only what can be
// known from afar is checked, so that a request that cannot be met fails on the claim, where its user looks, and before
// anything changed.
func (c *Controller) ControllerExpandVolume(ctx context.Context,
	req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size, err := c.checkExpand(ctx, req)
	if err != nil {
		return nil, driver.StatusOf(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

func (c *Controller) checkExpand(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (int64, error) {
	id := req.GetVolumeId()
	switch {
	case id == "":
		return 0, fmt.Errorf("%w: the request has no volume ID", volume.ErrInvalid)
	case req.GetCapacityRange() == nil:
		return 0, fmt.Errorf("%w: the request has no capacity range", volume.ErrInvalid)
	}
	size, err := volume.Size(req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return 0, err
	}
	if err := c.view.Check(ctx); err != nil {
		return 0, err
	}
	pv, err := c.view.volume(id)
	if err != nil {
		return 0, err
	}
	nodeName := nodeOf(pv)
	if nodeName == "" {
		return 0, fmt.Errorf("volume %s: %w: PersistentVolume %s does not say which node it is on", id,
			volume.ErrPrecondition, pv.Name)
	}
	current := pv.Spec.Capacity[corev1.ResourceStorage]
	growth := size - current.Value()
	if growth <= 0 {
		return max(size, current.Value()), nil
	}
	available, known, err := c.view.available(pv.Spec.StorageClassName, nodeName)
	if err != nil {
		return 0, err
	}
	if known && growth > available {
		return 0, fmt.Errorf("volume %s cannot grow from %d to %d MiB: %w: node %s can take %d MiB more",
			id, current.Value()/volume.MiB, size/volume.MiB, volume.ErrOutOfRange, nodeName, available/volume.MiB)
	}
	return size, nil
}
