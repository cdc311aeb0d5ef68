// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

// warnings collects what the API server says to a client.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.texts, "\n")
	w.texts = nil
	return text
}

// cluster is a real API server with the chart's objects, and replicas of the injector that act with the chart's rights.
type cluster struct {
	client   client.Client
	warnings *warnings
}

const configurationName = "splitfs-injector"

// point sends the API server to a replica on this machine, which the chart reaches through a Service.
func (c *cluster) point(t *testing.T, r *replica) {
	t.Helper()
	eventually(t, "webhook configuration is changed", func() error {
		configuration := &unstructured.Unstructured{}
		configuration.SetAPIVersion("admissionregistration.k8s.io/v1")
		configuration.SetKind("MutatingWebhookConfiguration")
		if err := c.client.Get(t.Context(), client.ObjectKey{Name: configurationName}, configuration); err != nil {
			return err
		}
		webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
		if err != nil {
			return err
		}
		// The old caBundle goes too: the injector has to put it back.
		for i := range webhooks {
			webhooks[i].(map[string]any)["clientConfig"] = map[string]any{
				"url": fmt.Sprintf("https://localhost:%d/mutate-pods", r.webhook),
			}
		}
		if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
			return err
		}
		return c.client.Update(t.Context(), configuration)
	})
	eventually(t, "caBundle is filled in", func() error {
		configuration := &unstructured.Unstructured{}
		configuration.SetAPIVersion("admissionregistration.k8s.io/v1")
		configuration.SetKind("MutatingWebhookConfiguration")
		if err := c.client.Get(t.Context(), client.ObjectKey{Name: configurationName}, configuration); err != nil {
			return err
		}
		webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
		if err != nil {
			return err
		}
		for i := range webhooks {
			if err := bundleIsSet(webhooks[i].(map[string]any)); err != nil {
				return err
			}
		}
		return nil
	})
	// The API server learns of the change through its own watch.
	c.waitInjecting(t)
}

func (c *cluster) waitInjecting(t *testing.T) {
	t.Helper()
	eventually(t, "pods are injected", func() error {
		pod := podWith("probe", "ours")
		if err := c.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		if pod.Annotations["splitfs.io/status"] == "" {
			return fmt.Errorf("the pod was not injected: %v", pod.Annotations)
		}
		return nil
	})
	c.warnings.take()
}

func podWith(name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{Name: "app", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}},
			},
			Volumes: []corev1.Volume{
				{Name: "data",
					VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
						ClaimName: claim,
					}}},
			},
		},
	}
}

func claimWith(name string, class *string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}}
}

// claimIn makes the claim "ours" of the class splitfs-strict in a namespace.
func (c *cluster) claimIn(t *testing.T, namespace string) {
	t.Helper()
	claim := claimWith("ours", new("splitfs-strict"))
	claim.Namespace = namespace
	if err := c.client.Create(t.Context(), claim); err != nil {
		t.Fatalf("create claim: %v", err)
	}
}

func newCluster(t *testing.T, objects []*unstructured.Unstructured) (*cluster, *rest.Config) {
	t.Helper()
	env := charttest.StartAPIServer(t)
	c := &cluster{warnings: &warnings{}}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = c.warnings
	config.QPS = -1
	c.client = charttest.NewClient(t, config)
	charttest.CreateNamespace(t, c.client, charttest.Namespace)
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment", "DaemonSet", "PodDisruptionBudget":
			// Nothing would run them here.
			continue
		}
		if err := charttest.Apply(t.Context(), c.client, object); err != nil {
			t.Fatal(err)
		}
	}
	for _, claim := range []*corev1.PersistentVolumeClaim{
		claimWith("ours", new("splitfs-strict")), claimWith("by-default", nil), claimWith("foreign", new("manual")),
	} {
		if err := c.client.Create(t.Context(), claim); err != nil {
			t.Fatalf("create claim %s: %v", claim.Name, err)
		}
	}
	return c, env.Config
}

// TestCluster runs the real program, with the rights of the chart, against a real API server, from an empty Secret on.
func TestCluster(t *testing.T) {
	objects := charttest.Render(t, "--set", "storageClasses.sync.default=true",
		"--set", "injector.requiredClasses={my-strict}")
	c, config := newCluster(t, objects)
	path, file := program(t), kubeconfig(t, config)

	// Two at once: both may want to issue the first certificate.
	first, second := startReplica(t, path, file), startReplica(t, path, file)
	first.waitReady(t)
	second.waitReady(t)
	c.point(t, first)

	t.Run("injection", func(t *testing.T) { testInjection(t, c) })
	t.Run("sources of LD_PRELOAD", func(t *testing.T) { testPreloadSources(t, c) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, c) })
	t.Run("claim does not exist", func(t *testing.T) { testMissingClaim(t, c) })
	t.Run("claim a moment old", func(t *testing.T) { testFreshClaims(t, c) })
	t.Run("namespaces", func(t *testing.T) { testNamespaces(t, c) })
	t.Run("metrics", func(t *testing.T) {
		_, body, err := first.get(t.Context(), first.meter, "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			`splitfs_injector_pods_total{reason="",result="injected"}`,
			`splitfs_injector_pods_total{reason="annotation",result="denied"}`, `splitfs_injector_mounts_total{mode="strict"}`,
		} {
			if !strings.Contains(body, line) {
				t.Errorf("metrics lack %s", line)
			}
		}
	})
	t.Run("another replica takes over", func(t *testing.T) {
		first.stop(t)
		c.point(t, second)
	})
	t.Run("library by claim", func(t *testing.T) {
		third := startReplica(t, path, file, "--library-delivery=ephemeral")
		third.waitReady(t)
		c.point(t, third)
		testLibraryByClaim(t, c)
		third.stop(t)
		c.point(t, second)
	})
	t.Run("certificate is lost", func(t *testing.T) { testLostCertificate(t, c) })
	t.Run("certificate by somebody else", func(t *testing.T) {
		testForeignCertificate(t, c, startReplica(t, path, file, "--issue-certificates=false"))
	})
	t.Run("no injector", func(t *testing.T) {
		second.stop(t)
		testOutage(t, c)
	})
	replicas := []*replica{first, second}
	t.Run("recovery from a total outage", func(t *testing.T) {
		testRecovery(t, c, func() *replica {
			replicas = append(replicas, startReplica(t, path, file))
			return replicas[2]
		})
	})
	for _, r := range replicas {
		if log := r.log.String(); strings.Contains(log, "is forbidden") {
			t.Errorf("the chart's rights do not suffice:\n%s", log)
		}
	}
}
