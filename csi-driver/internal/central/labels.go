// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/internal/contract"
)

// Labels puts on Nodes what their SplitFSNodes say of their memory, for selectors of pods. The node services may not
// write Nodes.
type Labels struct {
	client  kubernetes.Interface
	view    *View
	objects *NodeObjects
}

// NewLabels returns a Labels that goes by these objects, which somebody runs.
func NewLabels(client kubernetes.Interface, view *View, objects *NodeObjects) *Labels {
	return &Labels{client: client, view: view, objects: objects}
}

// Run looks at every interval until ctx is done.
func (l *Labels) Run(ctx context.Context, interval time.Duration) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !l.objects.synced() || l.view.Check(ctx) != nil {
			return
		}
		if err := l.check(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot label all nodes with what their memory is")
		}
	}, interval)
}

func (l *Labels) check(ctx context.Context) error {
	nodes, err := l.view.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	says := map[string]*v1alpha1.SplitFSNode{}
	for _, n := range l.objects.list() {
		says[n.Name] = n
	}
	var errs []error
	for _, node := range nodes {
		errs = append(errs, l.label(ctx, node, says[node.Name]))
	}
	return errors.Join(errs...)
}

// label changes a node's labels where they are others. A node without a SplitFSNode has none.
func (l *Labels) label(ctx context.Context, node *corev1.Node, says *v1alpha1.SplitFSNode) error {
	want := map[string]string{}
	if says != nil && says.Status.Memory != "" {
		want[contract.LabelMemory] = says.Status.Memory
		want[contract.LabelDurable] = strconv.FormatBool(says.Status.Durable)
	}
	change := map[string]any{}
	for _, key := range []string{contract.LabelMemory, contract.LabelDurable} {
		has, there := node.Labels[key]
		value, wanted := want[key]
		switch {
		case wanted && has != value:
			change[key] = value
		case !wanted && there:
			change[key] = nil
		}
	}
	if len(change) == 0 {
		return nil
	}
	patch, err := metadataPatch(map[string]any{"labels": change})
	if err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	_, err = l.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{
		FieldManager: "splitfs-csi-controller",
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Labelled a node", "node", node.Name, "memory", want[contract.LabelMemory])
	return nil
}

// metadataPatch is a merge patch that changes nothing but these fields of an object's metadata.
func metadataPatch(fields map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": fields})
}
