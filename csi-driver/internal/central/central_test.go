// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"splitfs.io/splitfs/internal/contract"
)

const namespace = "splitfs-system"

func persistentVolume(name, nodeName string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			StorageClassName: "splitfs-strict",
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: contract.Driver, VolumeHandle: "handle-" + name},
			},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "claim-" + name},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	if nodeName != "" {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: contract.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}},
				},
			}},
		}}
	}
	return pv
}

func capacity(name, nodeName, quantity string) *storagev1.CSIStorageCapacity {
	q := resource.MustParse(quantity)
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Name: name, Namespace: namespace},
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{contract.TopologyKey: nodeName}},
		StorageClassName: "splitfs-strict", Capacity: &q,
	}
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func newView(t *testing.T, client *fake.Clientset) *View {
	t.Helper()
	view, err := NewView(client, namespace)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	view.Start(ctx)
	for deadline := time.Now().Add(10 * time.Second); view.Check(ctx) != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the view did not fill")
		}
	}
	return view
}

func TestControllerExpandVolume(t *testing.T) {
	objects := []runtime.Object{
		persistentVolume("one", "node-1"), persistentVolume("two", "node-2"), persistentVolume("lost", ""),
		capacity("c1", "node-1", "2Gi"), capacity("c3", "node-3", "1Ti"),
	}
	client := fake.NewClientset(objects...)
	controller := NewController(newView(t, client), client)
	const gib = int64(1) << 30
	for _, c := range []struct {
		name, id string
		required int64
		code     codes.Code
		message  string
	}{
		{"fits", "handle-one", 3 * gib, codes.OK, ""},
		{"smaller", "handle-one", gib / 2, codes.OK, ""},
		{"too large", "handle-one", 3*gib + 1, codes.OutOfRange, "node node-1 can take 2048 MiB more"},
		{"nothing published for its node", "handle-two", 100 * gib, codes.OK, ""},
		{"no node", "handle-lost", 2 * gib, codes.FailedPrecondition, "does not say which node"},
		{"unknown", "handle-x", 2 * gib, codes.NotFound, "no PersistentVolume has it"},
		{"no ID", "", 2 * gib, codes.InvalidArgument, "no volume ID"},
	} {
		resp, err := controller.ControllerExpandVolume(context.Background(), &csi.ControllerExpandVolumeRequest{
			VolumeId: c.id, CapacityRange: &csi.CapacityRange{RequiredBytes: c.required},
		})
		if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && (!resp.GetNodeExpansionRequired() || resp.GetCapacityBytes() < c.required) {
			t.Errorf("%s: %v", c.name, resp)
		}
	}
}

func TestOrphans(t *testing.T) {
	library := persistentVolume("library", "node-2")
	library.Spec.CSI.VolumeAttributes = map[string]string{"splitfs.io/kind": "library"} // nothing is lost with it
	client := fake.NewClientset(persistentVolume("one", "node-1"), persistentVolume("two", "node-2"), library,
		node("node-1"))
	view := newView(t, client)
	recorder := record.NewFakeRecorder(16)
	clk := clocktesting.NewFakePassiveClock(time.Now())
	orphans := NewOrphans(view, recorder, 10*time.Minute, clk)
	check := func(wantEvents int) {
		t.Helper()
		if err := orphans.check(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(recorder.Events) != wantEvents {
			t.Errorf("%d events, wanted %d", len(recorder.Events), wantEvents)
		}
		for len(recorder.Events) > 0 {
			if e := <-recorder.Events; !strings.Contains(e, "VolumeNodeGone") || !strings.Contains(e, "handle-two") {
				t.Errorf("event %q", e)
			}
		}
	}
	check(0) // missing, but perhaps only for a moment
	clk.SetTime(clk.Now().Add(11 * time.Minute))
	check(2) // on the volume and on its claim
	check(0) // once is enough
	if _, err := client.CoreV1().Nodes().Create(context.Background(), node("node-2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := view.nodes.Get("node-2"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the view did not see the new node")
		}
	}
	check(0)
	if len(orphans.missing) != 0 || len(orphans.reported) != 0 {
		t.Errorf("a node that came back is still remembered: %v %v", orphans.missing, orphans.reported)
	}
	if pvs, err := client.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{}); err != nil ||
		len(pvs.Items) != 3 {
		t.Errorf("volumes were touched: %v, %v", pvs, err)
	}
}
