// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

// TestInstallUpgradeUninstall runs Helm against a real API server. What the injector wrote into its Secret and into the
// webhook's configuration must survive an upgrade: without it every pod with a claim would be refused.
func TestInstallUpgradeUninstall(t *testing.T) {
	helm := charttest.Helm(t)
	env := charttest.StartAPIServer(t)
	c := charttest.NewClient(t, env.Config)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) {
		t.Helper()
		arguments = append(arguments, "--kubeconfig", kubeconfig, "--namespace", charttest.Namespace)
		if output, err := exec.CommandContext(t.Context(), helm, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("helm %v: %v\n%s", arguments, err, output)
		}
	}
	chart := filepath.Join(charttest.Root(t), "charts", "splitfs")
	run("install", "splitfs", chart, "--create-namespace")

	secretKey := client.ObjectKey{Namespace: charttest.Namespace, Name: "splitfs-injector-certs"}
	secret := &corev1.Secret{}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	get := func(key client.ObjectKey, object client.Object) {
		t.Helper()
		if err := c.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
	}
	get(secretKey, secret)
	secret.Data = map[string][]byte{"tls.crt": []byte("certificate")}
	get(client.ObjectKey{Name: "splitfs-injector"}, configuration)
	bundle := env.Config.CAData
	configuration.Webhooks[0].ClientConfig.CABundle = bundle
	for _, object := range []client.Object{secret, configuration} {
		if err := c.Update(t.Context(), object, client.FieldOwner("splitfs-injector")); err != nil {
			t.Fatal(err)
		}
	}

	run("upgrade", "splitfs", chart, "--set", "injector.timeoutSeconds=7", "--set", "storageClasses.sync.create=false")
	get(secretKey, secret)
	get(client.ObjectKey{Name: "splitfs-injector"}, configuration)
	if string(secret.Data["tls.crt"]) != "certificate" ||
		string(configuration.Webhooks[0].ClientConfig.CABundle) != string(bundle) {
		t.Errorf("the upgrade took the certificate away: Secret %v, caBundle of %d bytes", secret.Data,
			len(configuration.Webhooks[0].ClientConfig.CABundle))
	}
	if *configuration.Webhooks[0].TimeoutSeconds != 7 {
		t.Errorf("the upgrade did not change the timeout: %d", *configuration.Webhooks[0].TimeoutSeconds)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "splitfs-sync"}, &storagev1.StorageClass{}); !apierrors.IsNotFound(
		err) {
		t.Errorf("the class that is not wanted any more: %v", err)
	}

	run("uninstall", "splitfs")
	for key, object := range map[client.ObjectKey]client.Object{
		{Name: "csi.splitfs.io"}:                               &storagev1.CSIDriver{},
		{Name: "splitfs-strict"}:                               &storagev1.StorageClass{},
		{Name: "splitfs-injector"}:                             configuration,
		{Namespace: charttest.Namespace, Name: "splitfs-node"}: &appsv1.DaemonSet{},
		{Namespace: charttest.Namespace, Name: secretKey.Name}: secret,
	} {
		if err := c.Get(t.Context(), key, object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s after uninstalling: %v", object, key, err)
		}
	}
}
