// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

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
	c.claimIn(t, namespace)
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
