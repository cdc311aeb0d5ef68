// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestCluster: events arrive on the right object, with the UID that `kubectl describe` selects by.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "claim-uid"},
	})
	r := NewCluster(ctx, client, "test", "node-1")
	r.OnPVC(ctx, volume.PVC{Namespace: "ns", Name: "gone"}, true, "Ignored", "nobody is there to be told")
	r.OnPVC(ctx, volume.PVC{}, true, "Ignored", "created without csi-provisioner's metadata")
	r.OnPVC(ctx, volume.PVC{Namespace: "ns", Name: "claim"}, true, ReasonQuarantined, "on the claim")
	r.OnPod(ctx, volume.Pod{Namespace: "ns", Name: "pod", UID: "pod-uid"}, false, ReasonEmulated, "on the pod")
	r.OnNode(ctx, "node-1", true, ReasonLibraryRestored, "on the node")

	var list *corev1.EventList
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if list, err = client.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) >= 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("only %d events", len(list.Items))
		}
	}
	want := map[string]string{
		"PersistentVolumeClaim/claim/claim-uid": "Warning " + ReasonQuarantined,
		"Pod/pod/pod-uid":                       "Normal " + ReasonEmulated,
		"Node/node-1/node-1":                    "Warning " + ReasonLibraryRestored,
	}
	for _, e := range list.Items {
		o := e.InvolvedObject
		key := o.Kind + "/" + o.Name + "/" + string(o.UID)
		if want[key] != e.Type+" "+e.Reason || e.Source.Host != "node-1" {
			t.Errorf("unexpected event on %s: %s %s from %+v", key, e.Type, e.Reason, e.Source)
		}
	}
}
