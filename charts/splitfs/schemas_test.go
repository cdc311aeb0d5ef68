// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"splitfs.io/splitfs/charts/charttest"
)

// TestSchemas: every object, for several values, is one by Kubernetes' own schemas, in which an unknown field is an
// error.
func TestSchemas(t *testing.T) {
	schemas := charttest.LoadSchemas(t)
	for name, arguments := range variants {
		t.Run(name, func(t *testing.T) {
			for _, object := range charttest.Render(t, arguments...) {
				if err := schemas.Check(object); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("wrong objects", func(t *testing.T) {
		for name, c := range map[string]struct {
			kind, says string
			path       []string
			value      any
		}{
			"a field that is misspelt": {"DaemonSet", "'hostPid'", []string{"spec", "template", "spec", "hostPid"}, true},
			"a field of the wrong type": {"CSIDriver", "got string, want boolean", []string{"spec", "attachRequired"},
				"false"},
			"a field that is missing": {"StorageClass", "'provisioner'", []string{"provisioner"}, nil},
			"a kind that is none":     {"ConfigMap", "no such kind", []string{"kind"}, "ConfigMaps"},
			"a text where a list belongs": {"DaemonSet", "got string, want array",
				[]string{"spec", "template", "spec", "containers"}, "splitfs"},
			"an unknown field deep in a CRD": {"CustomResourceDefinition", "'preserve'", []string{"spec", "preserve"}, true},
		} {
			object := first(t, c.kind)
			if c.value == nil {
				unstructured.RemoveNestedField(object.Object, c.path...)
			} else if err := unstructured.SetNestedField(object.Object, c.value, c.path...); err != nil {
				t.Fatal(err)
			}
			if err := schemas.Check(object); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// first returns an object of a kind; one that the chart has none of is empty.
func first(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range charttest.Render(t) {
		if object.GetKind() == kind {
			return object
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
}
