// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

// NodeObjects follows SplitFSNodes: one watch for all who read them here.
type NodeObjects struct {
	informer cache.SharedIndexInformer
}

// NewNodeObjects returns NodeObjects that know nothing until they run.
func NewNodeObjects(client dynamic.Interface) (*NodeObjects, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.NodeResource, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(keepRead); err != nil {
		return nil, fmt.Errorf("watch SplitFSNodes: %w", err)
	}
	return &NodeObjects{informer: informer}, nil
}

// keepRead drops what nobody reads here of a SplitFSNode: there may be thousands.
func keepRead(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	var n v1alpha1.SplitFSNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(full.Object, &n); err != nil {
		return nil, fmt.Errorf("read SplitFSNode %s: %w", full.GetName(), err)
	}
	n.ManagedFields = nil
	n.Status = v1alpha1.SplitFSNodeStatus{
		HeartbeatTime: n.Status.HeartbeatTime, Conditions: n.Status.Conditions, Memory: n.Status.Memory,
		Durable: n.Status.Durable,
	}
	return &n, nil
}

// Run follows them until ctx is done.
func (o *NodeObjects) Run(ctx context.Context) { o.informer.RunWithContext(ctx) }

// synced says whether all that there were have been read.
func (o *NodeObjects) synced() bool { return o.informer.HasSynced() }

// list returns those that are known.
func (o *NodeObjects) list() []*v1alpha1.SplitFSNode {
	var all []*v1alpha1.SplitFSNode
	for _, object := range o.informer.GetStore().List() {
		if n, ok := object.(*v1alpha1.SplitFSNode); ok {
			all = append(all, n)
		}
	}
	return all
}
