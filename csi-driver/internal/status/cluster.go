// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/internal/contract"
)

// requestsPerSecond and burst bound what one node asks of the API server, whatever its volumes do.
const (
	requestsPerSecond = 5
	burst             = 20
)

// FieldManager owns what the node service writes.
const FieldManager = "splitfs-csi-node"

var nodeResource = corev1.SchemeGroupVersion.WithResource("nodes")

// Cluster is the API server, as the Writer uses it.
type Cluster struct{ client dynamic.Interface }

// NewCluster connects to the API server with a limit of its own on requests.
func NewCluster(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestsPerSecond, burst
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Cluster{client: client}, nil
}

// node returns the status that a SplitFSNode has.
func (c *Cluster) node(ctx context.Context, name string) (v1alpha1.SplitFSNodeStatus, error) {
	var n v1alpha1.SplitFSNode
	object, err := c.client.Resource(v1alpha1.NodeResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return n.Status, fmt.Errorf("get SplitFSNode %s: %w", name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &n); err != nil {
		return n.Status, fmt.Errorf("read SplitFSNode %s: %w", name, err)
	}
	return n.Status, nil
}

// volumes returns the statuses of the SplitFSVolumes of a node, by name.
func (c *Cluster) volumes(ctx context.Context, nodeName string) (map[string]v1alpha1.SplitFSVolumeStatus, error) {
	// Version "0": whatever the API server has in its cache is new enough, and spares the storage behind it.
	list, err := c.client.Resource(v1alpha1.VolumeResource).List(ctx, metav1.ListOptions{
		LabelSelector: contract.TopologyKey + "=" + nodeName, ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("list the SplitFSVolumes of node %s: %w", nodeName, err)
	}
	volumes := map[string]v1alpha1.SplitFSVolumeStatus{}
	for i := range list.Items {
		var v v1alpha1.SplitFSVolume
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &v); err != nil {
			return nil, fmt.Errorf("read SplitFSVolume %s: %w", list.Items[i].GetName(), err)
		}
		volumes[v.Name] = v.Status
	}
	return volumes, nil
}

// createNode makes the SplitFSNode and returns its UID. It belongs to the Node: Kubernetes removes it with the Node.
func (c *Cluster) createNode(ctx context.Context, name string) (types.UID, error) {
	owner, err := c.client.Resource(nodeResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get node %s: %w", name, err)
	}
	object := newObject(v1alpha1.NodeKind, name)
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner.GetUID()}})
	made, err := c.client.Resource(v1alpha1.NodeResource).Apply(ctx, name, object, applyOptions())
	if err != nil {
		return "", err
	}
	return made.GetUID(), nil
}

// createVolume makes the SplitFSVolume, which belongs to the SplitFSNode.
func (c *Cluster) createVolume(ctx context.Context, id, nodeName string, nodeUID types.UID) error {
	object := newObject(v1alpha1.VolumeKind, id)
	object.SetLabels(map[string]string{contract.TopologyKey: nodeName})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.NodeKind.Kind, Name: nodeName, UID: nodeUID,
	}})
	_, err := c.client.Resource(v1alpha1.VolumeResource).Apply(ctx, id, object, applyOptions())
	return err
}

func (c *Cluster) writeNode(ctx context.Context, name string, status v1alpha1.SplitFSNodeStatus) error {
	return c.writeStatus(ctx, v1alpha1.NodeResource, newObject(v1alpha1.NodeKind, name), &status)
}

func (c *Cluster) writeVolume(ctx context.Context, id string, status v1alpha1.SplitFSVolumeStatus) error {
	return c.writeStatus(ctx, v1alpha1.VolumeResource, newObject(v1alpha1.VolumeKind, id), &status)
}

func (c *Cluster) writeStatus(ctx context.Context, resource schema.GroupVersionResource,
	object *unstructured.Unstructured, status any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", object.GetName(), err)
	}
	object.Object["status"] = content
	_, err = c.client.Resource(resource).ApplyStatus(ctx, object.GetName(), object, applyOptions())
	return err
}

// removeVolume removes the SplitFSVolume; the volume itself is none of its business.
func (c *Cluster) removeVolume(ctx context.Context, id string) error {
	err := c.client.Resource(v1alpha1.VolumeResource).Delete(ctx, id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func newObject(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	return object
}

// applyOptions: what somebody else wrote into these objects is overwritten; they say what the node says.
func applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
}
