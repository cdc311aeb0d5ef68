// SPDX-License-Identifier: Apache-2.0

package charttest

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns a client that reads and writes directly.
func NewClient(tb testing.TB, config *rest.Config) client.Client {
	tb.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		tb.Fatalf("make client: %v", err)
	}
	return client.WithFieldValidation(c, "Strict")
}

// NewTypedClient returns one for objects of the kinds that are added to its scheme.
func NewTypedClient(tb testing.TB, config *rest.Config, kinds ...func(*runtime.Scheme) error) client.Client {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range kinds {
		if err := add(scheme); err != nil {
			tb.Fatalf("add to scheme: %v", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		tb.Fatalf("make client: %v", err)
	}
	return c
}

// Apply creates or updates an object by server-side apply; unknown fields are errors. Helm's hooks are left out: a
// test's pod would need the webhook, which does not answer yet.
func Apply(ctx context.Context, c client.Client, object *unstructured.Unstructured,
	options ...client.ApplyOption) error {
	if _, hook := object.GetAnnotations()["helm.sh/hook"]; hook {
		return nil
	}
	object = object.DeepCopy()
	namespaced, err := c.IsObjectNamespaced(object)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if namespaced && object.GetNamespace() == "" {
		// As kubectl does.
		object.SetNamespace("default")
	}
	options = append(options, client.FieldOwner("charttest"), client.ForceOwnership)
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// CheckAccepted asks the API server about each object without storing it: schema, validation and admission as for a
// real one.
func CheckAccepted(tb testing.TB, c client.Client, objects []*unstructured.Unstructured) {
	tb.Helper()
	for _, object := range objects {
		if err := Apply(tb.Context(), c, object, client.DryRunAll); err != nil {
			tb.Error(err)
		}
	}
}

// CreateNamespace makes the namespace of the release.
func CreateNamespace(tb testing.TB, c client.Client, name string) {
	tb.Helper()
	namespace := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
	}
	if err := Apply(tb.Context(), c, namespace); err != nil {
		tb.Fatal(err)
	}
}
