// SPDX-License-Identifier: Apache-2.0

package central

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

// startAPIServer returns a real API server with the objects of these kinds that the chart has, and an administrator's
// client.
func startAPIServer(t *testing.T, kinds ...string) (*rest.Config, client.Client) {
	t.Helper()
	env := charttest.StartAPIServer(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clientgoscheme.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	charttest.CreateNamespace(t, charttest.NewClient(t, env.Config), charttest.Namespace)
	for _, object := range charttest.Render(t) {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		if err := charttest.Apply(t.Context(), charttest.NewClient(t, env.Config), object); err != nil {
			t.Fatal(err)
		}
	}
	return env.Config, admin
}

// asController is a configuration with the rights of the controller.
func asController(config *rest.Config) *rest.Config {
	limited := rest.CopyConfig(config)
	limited.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + charttest.Namespace + ":splitfs-controller",
	}
	return limited
}
