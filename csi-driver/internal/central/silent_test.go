// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

// TestSilent: with the chart's rights, on a real API server, a node that is not heard of is marked, and its next word
// counts again. What time it is on the node does not matter.
func TestSilent(t *testing.T) {
	server, admin := startAPIServer(t, "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
	now := time.Now().Truncate(time.Second)
	clk := testclock.NewFakePassiveClock(now)
	ready := metav1.Condition{
		Type: v1alpha1.NodeReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "m",
		LastTransitionTime: metav1.NewTime(now),
	}
	write := func(name string, heartbeat time.Time) {
		t.Helper()
		n := &v1alpha1.SplitFSNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
			eventuallyNil(t, "SplitFSNode "+name+" is made", func() error {
				return client.IgnoreAlreadyExists(admin.Create(t.Context(), n))
			})
			if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
				t.Fatal(err)
			}
		}
		n.Status = v1alpha1.SplitFSNodeStatus{
			HeartbeatTime: metav1.NewTime(heartbeat), VolumeCount: 3, Conditions: []metav1.Condition{ready},
		}
		if err := admin.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	write("behind", now.Add(-48*time.Hour))
	write("ahead", now.Add(48*time.Hour))

	config := asController(server)
	limited, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := NewNodeObjects(limited)
	if err != nil {
		t.Fatal(err)
	}
	silent := NewSilent(limited, nodes, 20*time.Minute, clk)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go nodes.Run(ctx)
	go silent.Run(ctx, 50*time.Millisecond)
	state := func(name string) metav1.ConditionStatus {
		t.Helper()
		n := &v1alpha1.SplitFSNode{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
			t.Fatal(err)
		}
		if n.Status.VolumeCount != 3 || len(n.Status.Conditions) != 1 {
			t.Errorf("more than the condition changed: %+v", n.Status)
		}
		return meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeReady).Status
	}
	eventuallyNil(t, "both are known", func() error {
		if n := len(nodes.list()); n != 2 {
			return fmt.Errorf("%d nodes", n)
		}
		return nil
	})
	time.Sleep(200 * time.Millisecond) // some looks
	for _, name := range []string{"behind", "ahead"} {
		if got := state(name); got != metav1.ConditionTrue {
			t.Errorf("a node whose clock is %s is %s", name, got)
		}
	}
	// The one goes on, by its own clock; the other says nothing any more.
	clk.SetTime(now.Add(15 * time.Minute))
	write("behind", now.Add(15*time.Minute-48*time.Hour))
	time.Sleep(200 * time.Millisecond)
	clk.SetTime(now.Add(25 * time.Minute))
	eventuallyNil(t, "the dead node is marked", func() error { return wantState(state("ahead"), metav1.ConditionUnknown) })
	if got := state("behind"); got != metav1.ConditionTrue {
		t.Errorf("the living node is %s", got)
	}
	write("ahead", now)
	time.Sleep(500 * time.Millisecond)
	if got := state("ahead"); got != metav1.ConditionTrue {
		t.Errorf("a node that was heard of again is %s", got)
	}
	clk.SetTime(now.Add(60 * time.Minute))
	eventuallyNil(t, "all nodes are marked", func() error { return wantState(state("behind"), metav1.ConditionUnknown) })
}

func wantState(have, want metav1.ConditionStatus) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("it is %s, wanted %s", have, want)
}

func eventuallyNil(t *testing.T, what string, condition func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = condition(); err == nil {
			return
		}
	}
	t.Fatalf("not so after 30 s: %s: %v", what, err)
}

// TestKeepHeartbeat: what the controller keeps of an object does not grow with its node's volumes.
func TestKeepHeartbeat(t *testing.T) {
	full := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "n", "resourceVersion": "7"},
		"status": map[string]any{
			"heartbeatTime": "2026-01-02T03:04:05Z", "volumeCount": int64(1), "volumes": []any{map[string]any{"id": "v"}},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		},
	}}
	kept, err := keepRead(full)
	if err != nil {
		t.Fatal(err)
	}
	n, ok := kept.(*v1alpha1.SplitFSNode)
	if !ok || n.Name != "n" || n.ResourceVersion != "7" || n.Status.HeartbeatTime.IsZero() ||
		len(n.Status.Conditions) != 1 || n.Status.Volumes != nil {
		t.Errorf("kept %+v", kept)
	}
}
