// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"splitfs.io/splitfs/charts/charttest"
)

// TestAPIServerAcceptsChart tries all objects, for several values, on a real API server.
func TestAPIServerAcceptsChart(t *testing.T) {
	rendered := map[string][]*unstructured.Unstructured{}
	for name, arguments := range variants {
		rendered[name] = charttest.Render(t, arguments...)
	}
	env := charttest.StartAPIServer(t)
	c := charttest.NewClient(t, env.Config)
	charttest.CreateNamespace(t, c, charttest.Namespace)
	for name, objects := range rendered {
		t.Run(name, func(t *testing.T) { charttest.CheckAccepted(t, c, objects) })
	}
	t.Run("a wrong object is refused", func(t *testing.T) {
		for _, object := range rendered["defaults"] {
			if object.GetKind() == "MutatingWebhookConfiguration" {
				broken := object.DeepCopy()
				webhooks := broken.Object["webhooks"].([]any)
				conditions := webhooks[0].(map[string]any)["matchConditions"].([]any)
				conditions[0].(map[string]any)["expression"] = "object.spec.volumes.exists("
				if err := charttest.Apply(t.Context(), c, broken); err == nil || !strings.Contains(err.Error(), "matchConditions") {
					t.Errorf("a broken expression: %v", err)
				}
			}
		}
	})
}

// certManager is the release whose CustomResourceDefinitions the chart's objects are tried on.
const certManager = "github.com/cert-manager/cert-manager@v1.21.2"

// TestCertManager: a real API server with cert-manager's types accepts what the chart makes for it, with our issuer and
// with another.
func TestCertManager(t *testing.T) {
	own := charttest.Render(t, "--set", "injector.certManager.enabled=true")
	other := charttest.Render(t, "--set", "injector.certManager.enabled=true",
		"--set-json", `injector.certManager.issuerRef={"kind":"ClusterIssuer","name":"corporate"}`)
	for name, objects := range map[string][]*unstructured.Unstructured{"own issuer": own, "other issuer": other} {
		count := map[string]int{}
		for _, object := range objects {
			count[object.GetKind()+"/"+object.GetName()]++
			if object.GetKind() == "MutatingWebhookConfiguration" &&
				object.GetAnnotations()["cert-manager.io/inject-ca-from"] != charttest.Namespace+"/splitfs-injector" {
				t.Errorf("%s: nobody fills in the caBundle", name)
			}
		}
		issuers := 0
		if name == "own issuer" {
			issuers = 1
		}
		if count["Certificate/splitfs-injector"] != 1 || count["Issuer/splitfs-injector"] != issuers ||
			count["Secret/splitfs-injector-certs"] != 0 {
			t.Errorf("%s: objects are %v", name, count)
		}
	}

	acceptedWith(t, certManager,
		[]string{"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml"},
		"cert-manager.io/", append(own, other...))
}

// prometheusOperator is the release whose CustomResourceDefinitions the chart's objects are tried on.
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator@v0.93.1"

// TestPrometheusOperator: a real API server with prometheus-operator's types accepts the PodMonitors and the
// PrometheusRule.
func TestPrometheusOperator(t *testing.T) {
	objects := charttest.Render(t,
		append([]string{"--set", "monitoring.podMonitors.labels.release=a,monitoring.rules.labels.release=b"},
			monitored...)...)
	const crds = "example/prometheus-operator-crd/monitoring.coreos.com_"
	acceptedWith(t, prometheusOperator, []string{crds + "podmonitors.yaml", crds + "prometheusrules.yaml"},
		"monitoring.coreos.com/", objects)
}

// acceptedWith applies CustomResourceDefinitions out of a Go module to a real API server, and then all objects of a
// group.
func acceptedWith(t *testing.T, from string, crds []string, group string, objects []*unstructured.Unstructured) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", from).Output()
	if err != nil {
		t.Fatalf("fetch %s: %v", from, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		t.Fatal(err)
	}
	env := charttest.StartAPIServer(t)
	c := charttest.NewClient(t, env.Config)
	charttest.CreateNamespace(t, c, charttest.Namespace)
	for _, crd := range crds {
		text, err := os.ReadFile(filepath.Join(module.Dir, crd))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range charttest.Objects(t, text) {
			if err := charttest.Apply(t.Context(), c, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	applied := 0
	for _, object := range objects {
		if !strings.HasPrefix(object.GetAPIVersion(), group) {
			continue
		}
		charttest.Eventually(t, "apply "+object.GetName(), func() error { return charttest.Apply(t.Context(), c, object) })
		applied++
	}
	if applied == 0 {
		t.Errorf("the chart has no object of %s", group)
	}
}
