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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// contentCRD is the custom resource of the version that hack/quickstart installs.
func contentCRD(t *testing.T) []*unstructured.Unstructured {
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
	text, err := os.ReadFile(
		filepath.Join(module.Dir, "config", "crd", contentResource.Group+"_"+contentResource.Resource+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return charttest.Objects(t, text)
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
		"--set", "snapshots.enabled=true") {
		switch object.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			apply(object)
		}
	}
	apply(contentCRD(t)...)
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

	want := map[string]string{
		"first": "node-2", "foreign": "", "other": "node-9", "dynamic": "", "late": "", "nonsense": "", "last": "node-1",
	}
	for name, object := range map[string]*unstructured.Unstructured{
		"foreign":  snapshotContent("foreign", "csi.example.com", volume.SnapshotID("foreign", "node-1"), ""),
		"other":    snapshotContent("other", contract.Driver, volume.SnapshotID("other", "node-1"), "node-9"),
		"dynamic":  snapshotContent("dynamic", contract.Driver, volume.IDFromName("dynamic"), ""),
		"late":     snapshotContent("late", contract.Driver, volume.SnapshotID("late", "node-3"), ""),
		"nonsense": snapshotContent("nonsense", contract.Driver, "snapshot-1", ""),
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
}
