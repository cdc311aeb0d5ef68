// SPDX-License-Identifier: Apache-2.0

package modify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// fakeNode changes a volume after it failed so often.
type fakeNode struct {
	mu       sync.Mutex
	failures int
	changed  []volume.Changes
}

func (*fakeNode) Name() string { return "node-1" }

func (n *fakeNode) Modify(_ context.Context, id string, changes volume.Changes) (*volume.Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failures > 0 {
		n.failures--
		return nil, errors.New("the disk is away")
	}
	if changes.Erase == volume.EraseDiscard {
		return nil, fmt.Errorf("%w: no discard here", volume.ErrInvalid)
	}
	if id != "one" {
		return nil, fmt.Errorf("volume %s: %w", id, volume.ErrNotFound)
	}
	n.changed = append(n.changed, changes)
	return &volume.Record{ID: id, Mode: changes.Mode}, nil
}

func persistentVolume(id string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + id},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: contract.Driver, VolumeHandle: id},
		}},
	}
}

// TestWorker: a node does what it is asked for, once it can, and says so; it refuses what cannot be, and leaves other
// nodes' volumes alone.
func TestWorker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.NewClientset(persistentVolume("one"), persistentVolume("gone"), persistentVolume("elsewhere"))
	node, locks := &fakeNode{failures: 2}, &volume.Locks{}
	worker, err := NewWorker(client, node, locks)
	if err != nil {
		t.Fatal(err)
	}
	go worker.Run(ctx)
	ask := func(pv, node string, changes volume.Changes) {
		t.Helper()
		content, err := Ask(node, changes)
		if err == nil {
			_, err = client.CoreV1().PersistentVolumes().Patch(ctx, pv, types.MergePatchType, content, metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) *corev1.PersistentVolume {
		t.Helper()
		pv, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pv
	}
	answered := func(name string, changes volume.Changes) Answer {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			pv := get(name)
			if answer, ok := Answered(pv, changes); ok {
				if pv.Labels[Label] != "" {
					t.Errorf("%s is answered and still asked for: %v", name, pv.Labels)
				}
				return answer
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no answer: %v", name, pv.Annotations)
			}
		}
	}
	release, err := locks.TryLock("one", "stage")
	if err != nil {
		t.Fatal(err)
	}
	sync := volume.Changes{Mode: contract.Sync}
	ask("pv-one", "node-1", sync)
	ask("pv-elsewhere", "node-2", sync)
	time.Sleep(50 * time.Millisecond)
	if _, ok := Answered(get("pv-one"), sync); ok {
		t.Error("a volume was changed while somebody else was at it")
	}
	release()
	if answer := answered("pv-one", sync); answer.Refused != "" ||
		get("pv-one").Annotations["csi.splitfs.io/mode"] != "sync" {
		t.Errorf("%+v; %v", answer, get("pv-one").Annotations)
	}

	// Another change, and back again: an answer to an earlier request is none to this one.
	strict := volume.Changes{Mode: contract.Strict, Erase: volume.EraseOverwrite}
	for _, changes := range []volume.Changes{strict, sync} {
		ask("pv-one", "node-1", changes)
		if answer := answered("pv-one", changes); answer.Refused != "" ||
			get("pv-one").Annotations["csi.splitfs.io/mode"] != string(changes.Mode) {
			t.Errorf("%+v; %v", answer, get("pv-one").Annotations)
		}
	}
	discard := volume.Changes{Erase: volume.EraseDiscard}
	ask("pv-one", "node-1", discard)
	if answer := answered("pv-one", discard); answer.Refused == "" ||
		get("pv-one").Annotations["csi.splitfs.io/mode"] != "sync" {
		t.Errorf("%+v; %v", answer, get("pv-one").Annotations)
	}
	ask("pv-gone", "node-1", sync)
	if answer := answered("pv-gone", sync); answer.Refused == "" {
		t.Errorf("a volume that is not there: %+v", answer)
	}
	if _, ok := Answered(get("pv-elsewhere"), sync); ok {
		t.Error("answered for another node")
	}
	if len(node.changed) != 3 {
		t.Errorf("changed %v", node.changed)
	}
}

// TestAPIServer: with a real API server the node's watch shows what it is asked for and nothing else, and an answer to
// what is not asked for any more is not written.
func TestAPIServer(t *testing.T) {
	env := charttest.StartAPIServer(t)
	client, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	volumes := client.CoreV1().PersistentVolumes()
	for _, id := range []string{"one", "other"} {
		pv := persistentVolume(id)
		pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		if _, err := volumes.Create(ctx, pv, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patchWith := func(content []byte, err error) error {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		_, err = volumes.Patch(ctx, "pv-one", types.MergePatchType, content, metav1.PatchOptions{})
		return err
	}
	sync, strict := volume.Changes{Mode: contract.Sync}, volume.Changes{Mode: contract.Strict}
	if err := patchWith(Ask("node-1", sync)); err != nil {
		t.Fatal(err)
	}
	old, err := volumes.Get(ctx, "pv-one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := patchWith(Ask("node-1", strict)); err != nil {
		t.Fatal(err)
	}
	if err := patchWith(reply(old, Answer{Request: sync}, contract.Sync)); !apierrors.IsConflict(err) {
		t.Errorf("an answer to an earlier request: %v", err)
	}
	node := &fakeNode{}
	worker, err := NewWorker(client, node, &volume.Locks{})
	if err != nil {
		t.Fatal(err)
	}
	go worker.Run(ctx)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pv, err := volumes.Get(ctx, "pv-one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if answer, ok := Answered(pv, strict); ok {
			if answer.Refused != "" || pv.Annotations[contract.AnnotationVolumeMode] != "strict" || pv.Labels[Label] != "" {
				t.Errorf("%+v; labels %v, annotations %v", answer, pv.Labels, pv.Annotations)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer: labels %v, annotations %v", pv.Labels, pv.Annotations)
		}
	}
	if list, err := worker.volumes.List(labels.Everything()); err != nil || len(list) > 1 {
		t.Errorf("the node watches %v, %v", list, err)
	}
	if err := patchWith(Forget()); err != nil {
		t.Fatal(err)
	}
	pv, err := volumes.Get(ctx, "pv-one", metav1.GetOptions{})
	if _, asked, _ := Requested(pv); err != nil || asked || pv.Annotations[contract.AnnotationVolumeMode] != "strict" {
		t.Errorf("after it was forgotten: %v, %v", pv.Annotations, err)
	}
}
