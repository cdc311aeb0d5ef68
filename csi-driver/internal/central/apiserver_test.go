// SPDX-License-Identifier: Apache-2.0

package central

import (
	"slices"
	"testing"

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
	admin := charttest.NewTypedClient(t, env.Config, v1alpha1.AddToScheme, clientgoscheme.AddToScheme)
	chart := charttest.NewClient(t, env.Config)
	charttest.CreateNamespace(t, chart, charttest.Namespace)
	for _, object := range charttest.Render(t) {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		if err := charttest.Apply(t.Context(), chart, object); err != nil {
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
