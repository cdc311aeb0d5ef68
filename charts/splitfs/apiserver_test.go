// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
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
				webhooks[0].(map[string]any)["matchConditions"].([]any)[0].(map[string]any)["expression"] = "object.spec.volumes.exists("
				if err := charttest.Apply(t.Context(), c, broken); err == nil || !strings.Contains(err.Error(), "matchConditions") {
					t.Errorf("a broken expression: %v", err)
				}
			}
		}
	})
}
