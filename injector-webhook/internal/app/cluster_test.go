// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
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

func testInjection(t *testing.T, c *cluster) {
	for name, want := range map[string]string{
		"ours": "strict:/data:/opt/splitfs/agents", "by-default": "sync:/data:/opt/splitfs/agents",
	} {
		pod := podWith("inject-"+name, name)
		if err := c.client.Create(t.Context(), pod); err != nil {
			t.Fatalf("create pod: %v", err)
		}
		env := map[string]string{}
		for _, v := range pod.Spec.Containers[0].Env {
			env[v.Name] = v.Value
		}
		if env["SPLITFS_CONFIG"] != want || env["LD_PRELOAD"] != "/opt/splitfs/libsplit.so" || len(env) != 2 {
			t.Errorf("claim %s: env is %v", name, env)
		}
		mounts := pod.Spec.Containers[0].VolumeMounts
		if len(mounts) != 4 || mounts[1].MountPath != "/opt/splitfs" || !mounts[1].ReadOnly || len(pod.Spec.Volumes) != 2 ||
			pod.Spec.Volumes[1].CSI.Driver != "csi.splitfs.io" {
			t.Errorf("claim %s: mounts %+v, volumes %+v", name, mounts, pod.Spec.Volumes)
		}
		if text := c.warnings.take(); text != "" {
			t.Errorf("claim %s: warnings %s", name, text)
		}
	}
	ephemeral := podWith("inject-ephemeral", "")
	ephemeral.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimWith("", new("splitfs-posix")).Spec}}}
	if err := c.client.Create(t.Context(), ephemeral); err != nil {
		t.Fatalf("create pod: %v", err)
	}
	if status := ephemeral.Annotations["splitfs.io/status"]; status !=
		`{"injected":true,"containers":{"app":{"/data":"posix"}}}` {
		t.Errorf("ephemeral volume: status %s", status)
	}
	plain := podWith("inject-plain", "")
	plain.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	if err := c.client.Create(t.Context(), plain); err != nil {
		t.Fatalf("create pod: %v", err)
	}
	if len(plain.Annotations) != 0 || len(plain.Spec.Volumes) != 1 || len(plain.Spec.Containers[0].Env) != 0 {
		t.Errorf("a pod without our volumes was changed: %+v", plain)
	}
}

// testLibraryByClaim: a restricted namespace admits a pod that gets the library by a claim, and the claim is not taken
// for a volume of the pod's own, also when the pod is made anew from its own text.
func testLibraryByClaim(t *testing.T, c *cluster) {
	for _, object := range charttest.Render(t, "--set", "injector.library.delivery=ephemeral") {
		if object.GetKind() == "StorageClass" && object.GetName() == "splitfs-library" {
			if err := charttest.Apply(t.Context(), c.client, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	const namespace = "restricted"
	if err := c.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}); err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	claim := claimWith("ours", new("splitfs-strict"))
	claim.Namespace = namespace
	if err := c.client.Create(t.Context(), claim); err != nil {
		t.Fatalf("create claim: %v", err)
	}
	pod := podWith("first", "ours")
	pod.Namespace = namespace
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	for _, name := range []string{"first", "again"} {
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name}
		if err := c.client.Create(t.Context(), pod); err != nil {
			t.Fatalf("create pod %s: %v", name, err)
		}
		if text := c.warnings.take(); text != "" {
			t.Errorf("pod %s: warnings %s", name, text)
		}
		if len(pod.Spec.Volumes) != 2 || pod.Spec.Volumes[1].Ephemeral == nil ||
			*pod.Spec.Volumes[1].Ephemeral.VolumeClaimTemplate.Spec.StorageClassName != "splitfs-library" {
			t.Fatalf("pod %s: volumes %+v", name, pod.Spec.Volumes)
		}
		if status := pod.Annotations["splitfs.io/status"]; status !=
			`{"injected":true,"containers":{"app":{"/data":"strict"}}}` {
			t.Errorf("pod %s: status %s", name, status)
		}
		if mounts := pod.Spec.Containers[0].VolumeMounts; len(mounts) != 4 || mounts[1].MountPath != "/opt/splitfs" ||
			!mounts[1].ReadOnly {
			t.Errorf("pod %s: mounts %+v", name, mounts)
		}
	}
}

// testPreloadSources: what the mutator writes for valueFrom and envFrom is valid for the API server. A pod whose own
// entries were not changed can also be applied a second time by its owner, although SPLITFS_LD_PRELOAD is there several
// times.
func testPreloadSources(t *testing.T, c *cluster) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  containers:
  - name: app
    image: i
    %s
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: ours}}]
`
	tests := []struct {
		name, source string
		times, want  int
	}{
		{name: "none", times: 2, want: 2},
		{name: "env-from", source: `envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}]`, times: 2, want: 5},
		{name: "value-from",
			source: `env: [{name: LD_PRELOAD, valueFrom: {configMapKeyRef: {name: a, key: lib, optional: true}}}, {name: ` +
				`OTHER, value: x}]`, times: 1, want: 5},
	}
	for _, test := range tests {
		object := charttest.Objects(t, fmt.Appendf(nil, pod, "preload-"+test.name, test.source))[0]
		for range test.times {
			if err := charttest.Apply(t.Context(), c.client, object); err != nil {
				t.Fatal(err)
			}
			stored := &corev1.Pod{}
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(object), stored); err != nil {
				t.Fatal(err)
			}
			if env := stored.Spec.Containers[0].Env; len(env) != test.want {
				t.Errorf("pod %s has %d variables, want %d: %+v", object.GetName(), len(env), test.want, env)
			}
		}
	}
	c.warnings.take()
}

func testRefusals(t *testing.T, c *cluster) {
	for value, says := range map[string]string{
		"fast":                    `annotation splitfs.io/mode: "fast" is not a mode; allowed are posix, sync, strict`,
		strings.Repeat("x", 1000): "a value of 1000 bytes",
	} {
		pod := podWith("refused", "ours")
		pod.Annotations = map[string]string{"splitfs.io/mode": value}
		if err := c.client.Create(t.Context(), pod); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("mode %.10s: %v", value, err)
		}
	}
	pod := podWith("refused", "ours")
	pod.Spec.Containers[0].VolumeMounts[0].MountPath = "/a;b"
	if err := c.client.Create(t.Context(), pod); err == nil ||
		!strings.Contains(err.Error(), "choose a path without them") {
		t.Errorf("mount path with a semicolon: %v", err)
	}
}

func testMissingClaim(t *testing.T, c *cluster) {
	pod := podWith("missing-strict", "later")
	pod.Annotations = map[string]string{"splitfs.io/mode": "strict"}
	if err := c.client.Create(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "create it before the pod") {
		t.Errorf("a mode is asked for: %v", err)
	}
	pod = podWith("missing", "later")
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "11111111-1111-1111-1111-111111111111",
			Controller: new(true)},
	}
	if err := c.client.Create(t.Context(), pod); err != nil {
		t.Fatalf("create pod: %v", err)
	}
	if text := c.warnings.take(); !strings.Contains(text, `PersistentVolumeClaim "default/later" does not exist`) {
		t.Errorf("warnings: %q", text)
	}
	if status := pod.Annotations["splitfs.io/status"]; !strings.Contains(status, `"injected":false`) {
		t.Errorf("status: %s", status)
	}
	eventually(t, "event on the pod's controller", func() error {
		list := &eventsv1.EventList{}
		if err := c.client.List(t.Context(), list, client.InNamespace("default")); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Reason == "SplitFSNotInjected" && event.Regarding.Kind == "ReplicaSet" && event.Regarding.Name == "web" &&
				strings.Contains(event.Note, "default/later") {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(list.Items))
	})
}

// testFreshClaims: claim and pod of one kubectl apply, faster than an informer.
func testFreshClaims(t *testing.T, c *cluster) {
	for i := range 20 {
		name := fmt.Sprintf("fresh-%d", i)
		if err := c.client.Create(t.Context(), claimWith(name, new("splitfs-strict"))); err != nil {
			t.Fatalf("create claim: %v", err)
		}
		pod := podWith(name, name)
		if err := c.client.Create(t.Context(), pod); err != nil {
			t.Fatalf("create pod: %v", err)
		}
		if !strings.Contains(pod.Annotations["splitfs.io/status"], "strict") {
			t.Fatalf("pod %d was not injected: %v %s", i, pod.Annotations, c.warnings.take())
		}
	}
}

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
		claim := claimWith("ours", new("splitfs-strict"))
		claim.Namespace = name
		if err := c.client.Create(t.Context(), claim); err != nil {
			t.Fatalf("create claim: %v", err)
		}
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
