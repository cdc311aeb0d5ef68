// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// contentCRDs are the custom resources of the version that hack/quickstart installs.
func contentCRDs(t *testing.T, resources ...schema.GroupVersionResource) []*unstructured.Unstructured {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	download.Dir = filepath.Join(charttest.Root(t), "hack", "tools", "snapshotter")
	download.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := download.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range resources {
		text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", r.Group+"_"+r.Resource+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, charttest.Objects(t, text)...)
	}
	return objects
}

func snapshotContent(name, driver, handle, label string) *unstructured.Unstructured {
	source := map[string]any{"snapshotHandle": handle}
	if strings.HasPrefix(handle, "splitfs-") {
		source = map[string]any{"volumeHandle": handle}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"driver": driver, "deletionPolicy": "Retain", "source": source,
			"volumeSnapshotRef": map[string]any{"namespace": "default", "name": name},
		},
	}}
	object.SetGroupVersionKind(contentKind)
	if label != "" {
		object.SetLabels(map[string]string{managedBy: label})
	}
	return object
}

// memberContent is what the snapshot controller makes for a snapshot of a group.
func memberContent(name, group string) *unstructured.Unstructured {
	object := snapshotContent(name, contract.Driver, volume.IDFromName(name), "")
	object.SetAnnotations(map[string]string{memberOf: group})
	return object
}

func groupContent(name string, source map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"driver": contract.Driver, "deletionPolicy": "Delete", "source": source, "volumeGroupSnapshotClassName": "splitfs",
			"volumeGroupSnapshotRef": map[string]any{"namespace": "default", "name": name},
		},
	}}
	object.SetGroupVersionKind(groupContentKind)
	return object
}

// checkGroupContents: VolumeGroupSnapshotContents get the label of the node that has their volumes, or their snapshots.
func checkGroupContents(t *testing.T, admin dynamic.Interface, clients kubernetes.Interface) {
	t.Helper()
	for name, nodeName := range map[string]string{"one": "node-2", "two": "node-2"} {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: contract.Driver, VolumeHandle: volume.IDFromName(name),
				}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: contract.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName},
					}}}},
				}},
			},
		}
		if _, err := clients.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"dynamic": "node-2", "by-hand": "node-1"}
	contents := admin.Resource(groupContentResource)
	for name, source := range map[string]map[string]any{
		// One of the volumes is not known any more.
		"dynamic": {"volumeHandles": []any{volume.IDFromName("gone"), volume.IDFromName("one"), volume.IDFromName("two")}},
		"by-hand": {"groupSnapshotHandles": map[string]any{
			"volumeGroupSnapshotHandle": volume.GroupID("group", "node-1"),
			"volumeSnapshotHandles":     []any{volume.SnapshotID("group/one", "node-1")},
		}},
	} {
		if _, err := contents.Create(t.Context(), groupContent(name, source), metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	eventuallyNil(t, "contents of groups are labelled", func() error {
		for name, node := range want {
			object, err := contents.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := object.GetLabels()[managedBy]; got != node {
				return fmt.Errorf("%s has the label %q, wanted %q", name, got, node)
			}
		}
		return nil
	})
}

// TestContents: with the chart's rights, on a real API server, contents that were made by hand get the label of their
// snapshot's node, also of one that comes later; all others stay as they are, and of those that have no node it is
// told.
func TestContents(t *testing.T) {
	env := charttest.StartAPIServer(t)
	admin := charttest.NewClient(t, env.Config)
	apply := func(objects ...*unstructured.Unstructured) {
		t.Helper()
		for _, object := range objects {
			if err := charttest.Apply(t.Context(), admin, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	charttest.CreateNamespace(t, admin, charttest.Namespace)
	for _, object := range charttest.Render(t, "--api-versions=snapshot.storage.k8s.io/v1",
		"--api-versions=groupsnapshot.storage.k8s.io/v1", "--set", "snapshots.enabled=true,snapshots.groups=true") {
		switch object.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			apply(object)
		}
	}
	apply(contentCRDs(t, contentResource, groupContentResource)...)
	config := asController(env.Config)
	clients, adminClients := kubernetes.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(env.Config)
	addNode := func(name string) {
		t.Helper()
		if _, err := adminClients.CoreV1().Nodes().Create(t.Context(), node(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	addNode("node-1")
	addNode("node-2")
	contents := dynamic.NewForConfigOrDie(env.Config).Resource(contentResource)
	// The custom resource is served a moment after it is made.
	eventuallyNil(t, "a content is made", func() error {
		_, err := contents.Create(t.Context(),
			snapshotContent("first", contract.Driver, volume.SnapshotID("first", "node-2"), ""), metav1.CreateOptions{})
		return err
	})

	view, err := NewView(clients, charttest.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	recorder := record.NewFakeRecorder(16)
	labeller, err := NewContents(dynamic.NewForConfigOrDie(config), view, recorder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	view.Start(ctx)
	go labeller.Run(ctx)
	groups, err := NewGroupContents(dynamic.NewForConfigOrDie(config), view, recorder)
	if err != nil {
		t.Fatal(err)
	}
	go groups.Run(ctx)

	want := map[string]string{
		"first": "node-2", "foreign": "", "other": "node-9", "dynamic": "", "late": "", "nonsense": "", "last": "node-1",
		"member": "node-2",
	}
	for name, object := range map[string]*unstructured.Unstructured{
		"foreign":  snapshotContent("foreign", "csi.example.com", volume.SnapshotID("foreign", "node-1"), ""),
		"other":    snapshotContent("other", contract.Driver, volume.SnapshotID("other", "node-1"), "node-9"),
		"dynamic":  snapshotContent("dynamic", contract.Driver, volume.IDFromName("dynamic"), ""),
		"late":     snapshotContent("late", contract.Driver, volume.SnapshotID("late", "node-3"), ""),
		"nonsense": snapshotContent("nonsense", contract.Driver, "snapshot-1", ""),
		"member":   memberContent("member", volume.GroupID("group", "node-2")),
	} {
		if _, err := contents.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if _, err := contents.Create(t.Context(),
		snapshotContent("last", contract.Driver, volume.SnapshotID("last", "node-1"), ""),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		list, err := contents.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != len(want) {
			return fmt.Errorf("there are %d contents, wanted %d", len(list.Items), len(want))
		}
		for i := range list.Items {
			if name, got := list.Items[i].GetName(), list.Items[i].GetLabels()[managedBy]; got != want[name] {
				return fmt.Errorf("%s has the label %q, wanted %q", name, got, want[name])
			}
		}
		return nil
	}
	eventuallyNil(t, "contents are labelled", check)
	told := map[string]bool{}
	for range 2 {
		told[<-recorder.Events] = true
	}
	text := fmt.Sprint(told)
	if len(recorder.Events) != 0 || !strings.Contains(text, `"snapshot-1" is no snapshot of`) ||
		!strings.Contains(text, "no node of this cluster has snapshot "+volume.SnapshotID("late", "node-3")) {
		t.Errorf("told: %v and %d more", told, len(recorder.Events))
	}

	addNode("node-3")
	want["late"] = "node-3"
	eventuallyNil(t, "the node that came is seen", func() error { _, err := view.nodes.Get("node-3"); return err })
	object, err := contents.Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.SetAnnotations(map[string]string{"touched": "by somebody"}) // sooner than contentsRetry
	if _, err := contents.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyNil(t, "a content whose node came is labelled", check)
	checkGroupContents(t, dynamic.NewForConfigOrDie(env.Config), adminClients)
}
