// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

// testLostCertificate empties the Secret: the injector must issue new ones, serve them and tell the API server.
func testLostCertificate(t *testing.T, c *cluster) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: charttest.Namespace, Name: "splitfs-injector-certs"}
	if err := c.client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	old := string(secret.Data["ca.crt"])
	secret.Data = nil
	if err := c.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new CA is issued", func() error {
		if err := c.client.Get(t.Context(), key, secret); err != nil {
			return err
		}
		if current := string(secret.Data["ca.crt"]); current == "" || current == old {
			return fmt.Errorf("the Secret holds %d bytes of CA", len(current))
		}
		return nil
	})
	c.waitInjecting(t)
}

// testForeignCertificate: with cert-manager the injector serves what it finds in the Secret, and never writes to it.
func testForeignCertificate(t *testing.T, c *cluster, r *replica) {
	r.waitReady(t)
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: charttest.Namespace, Name: "splitfs-injector-certs"}
	if err := c.client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	version, roots := secret.ResourceVersion, x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("the Secret holds no CA")
	}
	connection, err := tls.Dial("tcp", fmt.Sprintf("localhost:%d", r.webhook), &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatalf("connect to the webhook: %v", err)
	}
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	r.stop(t)
	if err := c.client.Get(t.Context(), key, secret); err != nil || secret.ResourceVersion != version {
		t.Errorf("the Secret was changed (%v)", err)
	}
}

// testOutage: what needs us waits, everything else does not notice.
func testOutage(t *testing.T, c *cluster) {
	ephemeral := func(class *string) corev1.VolumeSource {
		return corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimWith("", class).Spec},
			},
		}
	}
	annotated := func(name, claim string, annotations map[string]string) *corev1.Pod {
		pod := podWith("outage-"+name, claim)
		pod.Annotations = annotations
		return pod
	}
	with := func(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(pod)
		return pod
	}
	block := claimWith("block", new("splitfs-strict"))
	block.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	for _, claim := range []*corev1.PersistentVolumeClaim{
		claimWith("posix", new("splitfs-posix")), claimWith("mine", new("my-strict")), block,
	} {
		if err := c.client.Create(t.Context(), claim); err != nil {
			t.Fatalf("create claim: %v", err)
		}
	}
	// The policy sees claims through a watch of its own.
	eventually(t, "the policy knows the newest claim", func() error {
		if err := c.client.Create(t.Context(), podWith("outage-probe", "mine"), client.DryRunAll); err == nil {
			return fmt.Errorf("a pod with claim mine was admitted")
		}
		return nil
	})
	const webhook, policy = "required.injector.splitfs.io", "promises more than a kernel file system gives"
	strict := map[string]string{"splitfs.io/mode": "strict"}
	for _, test := range []struct {
		pod  *corev1.Pod
		says string
	}{
		{annotated("strict", "posix", strict), webhook},
		{annotated("unknown-mode", "posix", map[string]string{"splitfs.io/mode": "fast"}), webhook},
		{annotated("container", "posix", map[string]string{"splitfs.io/mode": "posix", "splitfs.io/mode.app": "sync"}),
			webhook},
		{annotated("missing", "nowhere", strict), webhook},
		{with(podWith("outage-ephemeral", ""), func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = ephemeral(new("splitfs-sync"))
		}), webhook},
		// The default class of this cluster is splitfs-sync.
		{with(podWith("outage-ephemeral-default", ""), func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = ephemeral(nil)
		}), webhook},
		{podWith("outage-class", "ours"), policy},
		{podWith("outage-default-class", "by-default"), policy},
		{podWith("outage-own-class", "mine"), policy},
		{annotated("other-container", "ours", map[string]string{"splitfs.io/mode.app": "posix"}), policy},
		{annotated("forged", "ours", map[string]string{"splitfs.io/status": `{"injected":false}`}), policy},
		{with(podWith("outage-init", "ours"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "init", Image: "i", VolumeMounts: p.Spec.Containers[0].VolumeMounts},
			}
			p.Spec.Containers[0].VolumeMounts = nil
		}), policy},
	} {
		if err := c.client.Create(t.Context(), test.pod); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("pod %s: %v; want %s", test.pod.Name, err, test.says)
		}
	}
	c.namespace(t, "outage-out", "false")
	inNamespace := func(namespace string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Namespace, p.Annotations = namespace, strict }
	}
	for _, pod := range []*corev1.Pod{
		podWith("outage-posix", "posix"), podWith("outage-foreign", "foreign"), podWith("outage-nowhere", "nowhere"),
		annotated("weaker", "ours", map[string]string{"splitfs.io/mode": "posix"}),
		annotated("annotation", "ours", map[string]string{"splitfs.io/inject": "false"}),
		with(podWith("outage-label", "ours"), func(p *corev1.Pod) {
			p.Labels = map[string]string{"splitfs.io/inject": "false"}
		}),
		with(podWith("outage-plain", ""), func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}),
		with(podWith("outage-none", ""), func(p *corev1.Pod) {
			p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = nil, nil
		}),
		with(podWith("outage-not-mounted", "ours"), func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = nil }),
		with(podWith("outage-block", "block"), func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[0].VolumeDevices = nil, []corev1.VolumeDevice{
				{Name: "data", DevicePath: "/dev/x"},
			}
		}),
		with(podWith("outage-ephemeral-posix", ""), func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = ephemeral(new("splitfs-posix"))
		}),
		with(podWith("outage-own", "ours"), inNamespace(charttest.Namespace)),
		with(podWith("outage-system", "ours"), inNamespace("kube-system")),
		with(podWith("outage-namespace", "ours"), inNamespace("outage-out")),
	} {
		if err := c.client.Create(t.Context(), pod); err != nil {
			t.Errorf("pod %s/%s is blocked: %v", pod.Namespace, pod.Name, err)
		}
	}
}

// testRecovery: every pod is gone, the injector's too. Its own start again, then all others, and none runs without what
// it needs.
func testRecovery(t *testing.T, c *cluster, start func() *replica) {
	for _, namespace := range []string{"default", charttest.Namespace, "kube-system"} {
		if err := c.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace),
			client.GracePeriodSeconds(0)); err != nil {
			t.Fatalf("delete all pods: %v", err)
		}
	}
	own := podWith("splitfs-injector-0", "")
	own.Namespace, own.Spec.Volumes, own.Spec.Containers[0].VolumeMounts = charttest.Namespace, nil, nil
	if err := c.client.Create(t.Context(), own); err != nil {
		t.Fatalf("the injector's own pod cannot be created: %v", err)
	}
	if err := c.client.Create(t.Context(), podWith("recovered", "ours")); err == nil {
		t.Fatal("a pod that needs the library was created without an injector")
	}
	r := start()
	r.waitReady(t)
	c.point(t, r)
	pod := podWith("recovered", "ours")
	eventually(t, "the pod is created by its controller's next attempt", func() error {
		return c.client.Create(t.Context(), pod)
	})
	if !strings.Contains(pod.Annotations["splitfs.io/status"], "strict") {
		t.Errorf("status: %v", pod.Annotations)
	}
}

// namespace makes a namespace with the label of the namespace policy; an empty value makes none.
func (c *cluster) namespace(t *testing.T, name, label string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if label != "" {
		namespace.Labels = map[string]string{"splitfs.io/inject": label}
	}
	if err := c.client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("create namespace: %v", err)
	}
}

// testNamespaces: with "all" the label keeps a namespace out, whatever its pods ask for.
func testNamespaces(t *testing.T, c *cluster) {
	for name, test := range map[string]struct {
		label    string
		injected bool
	}{"no-label": {"", true}, "opted-in": {"true", true}, "opted-out": {"false", false}} {
		c.namespace(t, name, test.label)
		c.claimIn(t, name)
		pod := podWith("p", "ours")
		pod.Namespace = name
		if err := c.client.Create(t.Context(), pod); err != nil {
			t.Errorf("namespace %s: %v", name, err)
		}
		if injected := pod.Annotations["splitfs.io/status"] != ""; injected != test.injected {
			t.Errorf("namespace %s: injected is %v", name, injected)
		}
	}
}
