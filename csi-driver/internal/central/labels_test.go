// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/internal/contract"
)

// TestLabels: with the chart's rights, on a real API server, a Node has the labels that its SplitFSNode stands for, and
// loses them with it; its other labels stay, and the controller's rights are not enough to change them.
func TestLabels(t *testing.T) {
	server, admin := startAPIServer(t, "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
		"Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	other := map[string]string{"zone": "a", contract.LabelMemory: "stale"}
	for _, name := range []string{"one", "two"} {
		if err := admin.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(other)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(memory string, durable bool) {
		t.Helper()
		n := &v1alpha1.SplitFSNode{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
		eventuallyNil(t, "the SplitFSNode is there", func() error {
			return client.IgnoreAlreadyExists(admin.Create(t.Context(), n))
		})
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			t.Fatal(err)
		}
		n.Status = v1alpha1.SplitFSNodeStatus{Memory: memory, Durable: durable}
		if err := admin.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	says("adr", true)

	config := asController(server)
	limited, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(body string) error {
		_, err := limited.CoreV1().Nodes().Patch(t.Context(), "two", types.MergePatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	}
	denied := func(body string) error {
		if err := patch(body); err == nil || !strings.Contains(err.Error(), "SplitFS: ") {
			return errors.Join(errors.New("not denied"), err)
		}
		return nil
	}
	// The policy counts from some moment on. A change that came before it would be none the second time, and never denied.
	tries := 0
	charttest.Eventually(t, "the policy counts", func() error {
		tries++
		return denied(fmt.Sprintf(`{"metadata":{"labels":{"try":"%d"}}}`, tries))
	})
	if err := admin.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two"}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"try":null}}}`))); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"metadata":{"labels":{"zone":"b"}}}`, `{"metadata":{"labels":{"zone":null}}}`,
		`{"metadata":{"labels":{"new":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`,
		`{"spec":{"unschedulable":true}}`, `{"metadata":{"finalizers":["a.example.com/b"]}}`,
	} {
		if err := denied(body); err != nil {
			t.Errorf("the controller may change %s: %v", body, err)
		}
	}

	view, err := NewView(limited, charttest.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := NewNodeObjects(objects)
	if err != nil {
		t.Fatal(err)
	}
	labels := NewLabels(limited, view, nodes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	view.Start(ctx)
	go nodes.Run(ctx)
	go labels.Run(ctx, 50*time.Millisecond)
	has := func(name string, want map[string]string) {
		t.Helper()
		eventuallyNil(t, fmt.Sprintf("node %s has %v", name, want), func() error {
			var n corev1.Node
			if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
				return err
			}
			if !maps.Equal(n.Labels, want) {
				return fmt.Errorf("it has %v", n.Labels)
			}
			return nil
		})
	}
	has("one", map[string]string{"zone": "a", "splitfs.io/memory": "adr", "splitfs.io/durable": "true"})
	has("two", map[string]string{"zone": "a"})
	says("volatile", false)
	has("one", map[string]string{"zone": "a", "splitfs.io/memory": "volatile", "splitfs.io/durable": "false"})
	if err := admin.Delete(t.Context(), &v1alpha1.SplitFSNode{ObjectMeta: metav1.ObjectMeta{Name: "one"}}); err != nil {
		t.Fatal(err)
	}
	has("one", map[string]string{"zone": "a"})
}
